"""What the status says of tenants: all that have used something, with limits or without, over all gateways."""

from __future__ import annotations

import msgspec

from messages.access.tenant_policy import OTHER_TENANTS
from messages.lifecycle.tree import StatusReport
from supervisor.operator.status_table import status_text
from supervisor.usage.tenant_lines import tenant_lines
from tests.support.examples.messages import INTERNAL

EXAMPLE = next(one for one in INTERNAL if isinstance(one, StatusReport))
SINCE = "tokens of tenants since the gateways started (requests): "
TODAY = "tokens counted against limits today (open sequences): "


def report_of(**statistics: dict[str, float]) -> StatusReport:
    """`statistics`: by the name of a child, with `_` for `/`."""
    children = [
        msgspec.structs.replace(EXAMPLE.children[0], name=name.replace("_", "/"), statistics=figures)
        for name, figures in statistics.items()
    ]
    return msgspec.structs.replace(EXAMPLE, children=children)


def used(**tokens: int) -> dict[str, float]:
    """The figures of a gateway at which each tenant has asked twice."""
    figures = {f"used tokens of {name}": float(n) for name, n in tokens.items()}
    return {**figures, **{f"ended requests of {name}": 2.0 for name in tokens}}


def test_tenants_without_limits_are_shown_and_gateways_are_added_up() -> None:
    assert tenant_lines(EXAMPLE) == []
    report = report_of(gateway_0=used(acme=12_000, free=5), gateway_1=used(free=20_000))
    assert tenant_lines(report) == [f"{SINCE}free 20,005 (4), acme 12,000 (2)"]


def test_tenants_with_limits_have_a_line_of_the_accounts_too() -> None:
    report = report_of(accounts_0={"sequences of acme": 2.0, "tokens today of acme": 12345.0}, gateway_0=used(acme=7))
    assert tenant_lines(report) == [f"{SINCE}acme 7 (2)", f"{TODAY}acme 12,345 (2)"]


def test_no_more_than_32_tenants_have_names() -> None:
    named = [{f"t{gateway}-{number}": 100 + number for number in range(32)} for gateway in range(2)]
    many = [used(**{OTHER_TENANTS: 1000}, **one) for one in named]
    [line] = tenant_lines(report_of(gateway_0=many[0], gateway_1=many[1]))
    parts = line.removeprefix(SINCE).split(", ")
    assert len(parts) == 33
    assert parts[0] == "t0-31 131 (2)"
    n_all = sum(int(part.split()[1].replace(",", "")) for part in [*parts[:-1]]) + int(parts[-1].split()[1].replace(",", ""))
    assert n_all == 2000 + 2 * sum(range(100, 132))
    assert parts[-1].endswith(f"({2 * 2 + 32 * 2})")


def test_the_row_of_a_gateway_does_not_repeat_them() -> None:
    text = status_text(report_of(gateway_0={**used(acme=7), "active": 3.0}), 240)
    assert text.count("acme") == 1
    assert "active 3" in text
