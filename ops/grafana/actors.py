"""The dashboard of the actors: who lives, who died of what, and what each process takes."""

from __future__ import annotations

from ops.grafana.panels import INSTANCE, DashboardPage, Panel, PanelUnit, Query, Section, Shape
from ops.grafana.promql import each, mean, quantiles, rate

_LIVES = Section(
    "Lives",
    (
        Panel(
            "Serving",
            "1 while an actor can serve.",
            (Query(each("tardigrade_up"), "{{actor}}"),),
            shape=Shape.STATES,
            width=12,
            most=1,
        ),
        Panel(
            "Deaths",
            "In the last five minutes, by cause.",
            (
                Query(
                    f'sum by (actor, cause) (increase(tardigrade_deaths_total{{{INSTANCE}, cause!="ended"}}[5m]))',
                    "{{actor}}: {{cause}}",
                ),
            ),
            width=12,
        ),
        Panel(
            "Retired",
            "1 while the server goes on without an actor.",
            (Query(each("tardigrade_retired"), "{{actor}}"),),
            shape=Shape.STATES,
            width=12,
            most=1,
        ),
        Panel("Restarts", "Since the server started.", (Query(each("tardigrade_restarts_total"), "{{actor}}"),), width=12),
    ),
)
_RECOVERY = Section(
    "What deaths have cost",
    (
        Panel(
            "Sequences submitted again",
            "After the death of a scheduler or a gang, or to another replica.",
            (
                Query(rate("tardigrade_resubmissions_total", "actor"), "{{actor}}: again"),
                Query(rate("tardigrade_moved_sequences_total", "actor"), "{{actor}}: moved"),
            ),
            PanelUnit.PER_S,
        ),
        Panel(
            "Requests taken over",
            "From the journal of a dead gateway, and streams that clients went on with.",
            (
                Query(rate("tardigrade_resumed_requests_total", "actor"), "{{actor}}: requests"),
                Query(rate("tardigrade_reattached_streams_total", "actor"), "{{actor}}: streams"),
            ),
            PanelUnit.PER_S,
        ),
        Panel(
            "Breakers",
            "0 closed, 1 half-open, 2 open: new requests avoid the replica.",
            (Query(f"max by (replica) ({each('tardigrade_breaker_state')})", "{{replica}}"),),
            shape=Shape.STATES,
            most=2,
        ),
    ),
)
_WORK = Section(
    "Work",
    (
        Panel(
            "Steps",
            "Each second, by scheduler.",
            (Query(rate("tardigrade_scheduler_steps_total", "actor"), "{{actor}}"),),
            PanelUnit.PER_S,
        ),
        Panel(
            "Time of a step",
            "On the device, over all ranks.",
            quantiles("tardigrade_worker_step_seconds", 0.5, 0.99),
            PanelUnit.SECONDS,
        ),
        Panel(
            "Running and waiting",
            "Sequences at each scheduler.",
            (
                Query(each("tardigrade_scheduler_running"), "{{actor}}: running"),
                Query(each("tardigrade_scheduler_waiting"), "{{actor}}: waiting"),
            ),
        ),
        Panel(
            "Tokens of a step",
            "Mean positions computed in one step.",
            (mean("tardigrade_scheduler_step_tokens", "{{actor}}", "actor"),),
        ),
        Panel(
            "Choice of replicas",
            "Sequences each second, by replica.",
            (Query(rate("tardigrade_balancing_choices_total", "replica"), "{{replica}}"),),
            PanelUnit.PER_S,
            is_stacked=True,
        ),
        Panel(
            "HTTP connections",
            "Open ones, and those that the server has closed.",
            (
                Query(each("tardigrade_http_connections"), "{{actor}}"),
                Query(rate("tardigrade_http_cut_total", "why"), "closed: {{why}}"),
            ),
        ),
    ),
)
_PROCESSES = Section(
    "Processes",
    (
        Panel(
            "Processor time",
            "Cores that each process takes.",
            (Query(rate("process_cpu_seconds_total", "actor"), "{{actor}}"),),
            is_stacked=True,
        ),
        Panel(
            "Memory",
            "Resident memory of each process.",
            (Query(each("process_resident_memory_bytes"), "{{actor}}"),),
            PanelUnit.BYTES,
            is_stacked=True,
        ),
        Panel(
            "Open files",
            "Share of the limit.",
            (Query(f"{each('process_open_fds')} / {each('process_max_fds')}", "{{actor}}"),),
            PanelUnit.SHARE,
            most=1,
        ),
    ),
)

ACTORS = DashboardPage(
    "tardigrade-actors", "Tardigrade: actors", "Who lives, who died of what.", (_LIVES, _RECOVERY, _WORK, _PROCESSES)
)
