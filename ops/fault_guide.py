"""Eleven faults that operators meet, and what tells them apart: drawn into docs/troubleshooting.md, and tried by a test.

The alert is one of ops/prometheus/tardigrade.rules.yml, whose annotations say what to do.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FaultGuide:
    """One fault. `page`: where an operator sees it. `command`: shows the log line, or the cause
    where no line tells it. `log`: the event of that line; "": there is none.
    `field`: the name and the value that tell this fault from others with such a line; ("", ""): the event does. `metric`: an
    expression of PromQL that has a value while it lasts, or soon after. `alert`: which is raised."""

    fault: str
    page: str
    command: str
    log: str
    field: tuple[str, str]
    metric: str
    alert: str


FULL_DISK = FaultGuide(
    "full disk",
    "`/health` says 503 and why; new requests get 503",
    "journalctl -u tardigrade",
    "journal: refuses writes",
    ("", ""),
    "tardigrade_journal_healthy == 0",
    "TardigradeJournalRefused",
)
SICK_GPU = FaultGuide(
    "sick GPU",
    "`supervisor status`: the line of the GPU",
    "supervisor logs gpu_monitor --level error",
    "gpu",
    ("state", "failed"),
    "tardigrade_gpu_readable == 0",
    "TardigradeGpuUnreadable",
)
SLOW_CLIENT = FaultGuide(
    "slow client",
    "access log: status 499 of one client",
    "supervisor logs gateway",
    "request",
    ("status", "499"),
    'tardigrade_http_cut_total{why="unread"} > 0',
    "TardigradeSlowClients",
)
POISON = FaultGuide(
    "request that kills its worker",
    "`supervisor status`: last exits of one gang",
    "supervisor logs gateway --level error",
    "sequence quarantined",
    ("", ""),
    'tardigrade_requests_total{ending="quarantined"} > 0',
    "TardigradePoison",
)
LOST_REPLICA = FaultGuide(
    "replica that loses requests",
    "`supervisor status`: restarts and last exits of one replica",
    "supervisor logs gateway --level warning",
    "new sequences avoid a replica for a while",
    ("", ""),
    "tardigrade_breaker_openings_total > 0",
    "TardigradeReplicaAvoided",
)
LOST_LINK = FaultGuide(
    "lost link",
    "streams pause for seconds, and no actor has died",
    "supervisor logs gateway --level warning",
    "link lost",
    ("direction", "to"),
    "tardigrade_links_lost_total > 0",
    "TardigradeLinkLost",
)
BAD_CONFIGURATION = FaultGuide(
    "bad configuration",
    "exit status 2, and the last line names the key",
    "supervisor check-config --config server.toml",
    "",
    ("", ""),
    "up == 0",
    "TardigradeDown",
)
EXPIRED_CERTIFICATE = FaultGuide(
    "expired certificate",
    "clients say so",
    "openssl x509 -noout -enddate -in server.pem",
    "",
    ("", ""),
    "tardigrade_certificate_expires_seconds - time() < 14 * 86400",
    "TardigradeCertificateExpires",
)
TENANT_FLOOD = FaultGuide(
    "flood of a tenant",
    "`supervisor status`: the line of tenants",
    "supervisor logs gateway",
    "refused",
    ("code", "rate_limit_exceeded"),
    "rate(tardigrade_tenant_refused_total[1m]) > 0",
    "TardigradeTenantFlood",
)
OUT_OF_MEMORY = FaultGuide(
    "memory used up",
    "`supervisor status`: last exit; dmesg",
    "supervisor logs worker --level warning",
    "child died",
    ("cause", "out_of_memory"),
    'tardigrade_deaths_total{cause="out_of_memory"} > 0',
    "TardigradeOutOfMemory",
)
FROZEN = FaultGuide(
    "frozen actor or step",
    "`supervisor status`: last exit says why it was killed",
    "supervisor logs worker --level warning",
    "child died",
    ("cause", "hung"),
    'tardigrade_deaths_total{cause="hung"} > 0',
    "TardigradeActorFrozen",
)
FAULTS = (
    FULL_DISK,
    SICK_GPU,
    SLOW_CLIENT,
    POISON,
    LOST_REPLICA,
    LOST_LINK,
    BAD_CONFIGURATION,
    EXPIRED_CERTIFICATE,
    TENANT_FLOOD,
    OUT_OF_MEMORY,
    FROZEN,
)
