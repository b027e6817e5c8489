"""The dashboard of the service: what users get."""

from __future__ import annotations

from ops.grafana.panels import INSTANCE, DashboardPage, Panel, PanelUnit, Query, Section, Shape
from ops.grafana.promql import mean, quantiles, rate, total

_SCHEDULER = "tardigrade_scheduler"


_NOW = Section(
    "Now",
    (
        Panel(
            "Output tokens",
            "Tokens that clients see, each second.",
            (Query(rate("tardigrade_output_tokens_total"), "tokens/s"),),
            PanelUnit.PER_S,
            Shape.NUMBERS,
            6,
        ),
        Panel(
            "Requests that run",
            "Accepted sequences that have not ended.",
            (Query(total("tardigrade_active_sequences"), "active"),),
            PanelUnit.NUMBER,
            Shape.NUMBERS,
            6,
        ),
        Panel(
            "Waiting",
            "Sequences in the queues of schedulers, and those that wait for a scheduler.",
            (Query(f"{total(f'{_SCHEDULER}_waiting')} + {total('tardigrade_waiting_sequences')}", "waiting"),),
            PanelUnit.NUMBER,
            Shape.NUMBERS,
            6,
        ),
        Panel(
            "Actors that serve",
            "Of all that there are.",
            (Query(f"{total('tardigrade_up')} / count(tardigrade_up{{{INSTANCE}}})", "serving"),),
            PanelUnit.SHARE,
            Shape.NUMBERS,
            6,
            most=1,
        ),
    ),
)
_REQUESTS = Section(
    "Requests",
    (
        Panel(
            "Ended requests",
            "By ending.",
            (Query(rate("tardigrade_requests_total", "ending"), "{{ending}}"),),
            PanelUnit.PER_S,
            is_stacked=True,
        ),
        Panel(
            "Refused requests",
            "By the code in the answer.",
            (Query(rate("tardigrade_refused_total", "code"), "{{code}}"),),
            PanelUnit.PER_S,
            is_stacked=True,
        ),
        Panel(
            "Tokens",
            "Prompts that were accepted and tokens that clients see.",
            (Query(rate("tardigrade_prompt_tokens_total"), "prompt"), Query(rate("tardigrade_output_tokens_total"), "output")),
            PanelUnit.PER_S,
        ),
        Panel(
            "First token",
            "From the acceptance of a request to its first visible token.",
            quantiles("tardigrade_time_to_first_token_seconds", 0.5, 0.9, 0.99),
            PanelUnit.SECONDS,
        ),
        Panel(
            "Between tokens",
            "Between visible tokens of one sequence.",
            quantiles("tardigrade_inter_token_seconds", 0.5, 0.9, 0.99),
            PanelUnit.SECONDS,
        ),
        Panel(
            "Whole requests",
            "From acceptance to ending.",
            quantiles("tardigrade_request_seconds", 0.5, 0.9, 0.99),
            PanelUnit.SECONDS,
        ),
        Panel(
            "Phases",
            "Mean times of queue, prefill and decode of requests that have ended.",
            tuple(mean(f"tardigrade_request_{phase}_seconds", phase) for phase in ("queue", "prefill", "decode")),
            PanelUnit.SECONDS,
            is_stacked=True,
        ),
        Panel(
            "Length",
            "Mean tokens of a request's prompts and answers.",
            (mean("tardigrade_request_prompt_tokens", "prompt"), mean("tardigrade_request_output_tokens", "output")),
        ),
        Panel(
            "Expected wait",
            "How long the queue will take.",
            (Query(f"max(tardigrade_expected_wait_seconds{{{INSTANCE}}})", "wait"),),
            PanelUnit.SECONDS,
        ),
    ),
)
_CACHES = Section(
    "Caches and speculation",
    (
        Panel(
            "Prompt tokens from the cache",
            "Share of prompt tokens whose prefill was saved.",
            (Query(f"{rate(f'{_SCHEDULER}_cached_tokens_total')} / {rate(f'{_SCHEDULER}_prompt_tokens_total')}", "cached"),),
            PanelUnit.SHARE,
            most=1,
        ),
        Panel(
            "KV pages",
            "By state.",
            tuple(Query(total(f"{_SCHEDULER}_{state}_pages"), state) for state in ("held", "cached", "free")),
            is_stacked=True,
        ),
        Panel(
            "Accepted drafts",
            "Share of draft tokens that the model has accepted.",
            (
                Query(
                    f"{rate(f'{_SCHEDULER}_accepted_draft_tokens_total')} / {rate(f'{_SCHEDULER}_drafted_tokens_total')}",
                    "accepted",
                ),
            ),
            PanelUnit.SHARE,
            most=1,
        ),
        Panel(
            "Sequences taken back",
            "Preemptions for want of pages, and sequences that gave way to urgent ones.",
            (
                Query(rate(f"{_SCHEDULER}_preemptions_total"), "preempted"),
                Query(rate(f"{_SCHEDULER}_displaced_total"), "displaced"),
            ),
            PanelUnit.PER_S,
        ),
        Panel("Journal", "Time of one commit.", quantiles("tardigrade_journal_commit_seconds", 0.5, 0.99), PanelUnit.SECONDS),
        Panel(
            "Journal's backlog",
            "Bytes shown to clients and not on disk yet, because the disk refuses.",
            (Query(total("tardigrade_journal_waiting_bytes"), "bytes"),),
            PanelUnit.BYTES,
        ),
    ),
)
_TENANTS = Section(
    "Tenants",
    (
        Panel(
            "Tokens by tenant",
            "The ten that use most.",
            (Query(f"topk(10, {rate('tardigrade_tenant_tokens_total', 'tenant')})", "{{tenant}}"),),
            PanelUnit.PER_S,
            is_stacked=True,
        ),
        Panel(
            "Refusals by limit",
            "Requests of tenants beyond their limits.",
            (Query(rate("tardigrade_tenant_refused_total", "tenant", "limit"), "{{tenant}}: {{limit}}"),),
            PanelUnit.PER_S,
        ),
        Panel(
            "Degradation",
            "0 normal, 1 no drafts, 2 fewer answers, 3 shorter answers, 4 new requests are shed.",
            (Query(f"max(tardigrade_degradation_level{{{INSTANCE}}})", "level"),),
            most=4,
        ),
    ),
)

SERVICE = DashboardPage("tardigrade-service", "Tardigrade: service", "What users get.", (_NOW, _REQUESTS, _CACHES, _TENANTS))
