"""A plan as text of at most 80 columns, and as JSON. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from messages.steps import PAGE_TOKENS
from supervisor.capacity.advice import advice
from supervisor.capacity.capacity_plan import ADVISED_SHARE, CapacityPlan
from supervisor.library.sizes import count_text, size_text
from supervisor.placement.quantities import counted

_WIDTH, _NAME = 80, 15
_LEAST_SHARE = 0.05
_MS = 1e3


def plan_text(name: str, plan: CapacityPlan, others: Sequence[CapacityPlan]) -> str:
    """For people. `name`: of the model; `others`: plans with another tp on the same devices."""
    rows = [*_fit_rows(name, plan), *_load_rows(plan), *_need_rows(plan)]
    rows += [("other layouts" if not index else "", _layout(other)) for index, other in enumerate(others)]
    rows += [("to change" if not index else "", text) for index, text in enumerate(advice(plan))]
    return "\n".join(_line(*row) for row in rows)


def plan_json(name: str, plan: CapacityPlan, others: Sequence[CapacityPlan]) -> dict[str, Any]:
    """For programs: all figures in base units."""
    placement, steady = plan.placement, plan.steady
    return {
        "model": name,
        "layout": {**_layout_json(plan), "devices": placement.device, "gpus": len(placement.gpus), "dtype": placement.dtype,
                   "quantization": placement.quantization, "kv_dtype": placement.kv_dtype, "standby": placement.has_standby},
        "load": {"requests_per_s": plan.load.rate_per_s, "prompt_tokens": plan.load.prompt_tokens,
                 "output_tokens": plan.load.output_tokens},
        "memory": {"device_bytes": placement.memory_bytes, "weight_bytes": placement.weight_bytes,
                   "kv_token_bytes": plan.kv.token_bytes, "kv_pages": plan.kv.n_pages,
                   "fitting_sequences": plan.kv.fits_sequences, "slots": plan.kv.n_slots},
        "at_this_load": {"sequences": steady.n_sequences * placement.replicas, "step_s": steady.step_s,
                         "token_s": steady.token_s, "first_token_s": steady.first_token_s,
                         "overloaded": steady.is_overloaded, "carried": plan.is_carried},
        "most": {"requests_per_s": plan.most_rate_per_s, "advised_requests_per_s": plan.advised_rate_per_s,
                 "output_tokens_per_s": plan.most_rate_per_s * plan.load.output_tokens,
                 "limit": plan.limit.value, "time": {part.value: share for part, share in plan.parts.items()}},
        "source": "measured" if plan.is_measured else "computed",
        "uncertainty": plan.uncertainty,
        "gateways": plan.gateways_needed,
        "host": {"memory_bytes": plan.needs.memory_bytes, "disk_bytes": plan.needs.disk_bytes,
                 "journal_bytes": plan.needs.journal_bytes, "model_bytes": plan.needs.model_bytes},
        "other_layouts": [_layout_json(other) for other in others],
        "to_change": advice(plan),
    }  # fmt: skip


def _fit_rows(name: str, plan: CapacityPlan) -> Iterator[tuple[str, str]]:
    kv = plan.kv
    yield "model", f"{name} fits: {plan.placement.text()}"
    yield (
        "pages",
        (
            f"{kv.n_pages:,} of {size_text(PAGE_TOKENS * kv.token_bytes)} in each replica, for {kv.fits_sequences:,} sequences"
            f" of {plan.load.whole_tokens:,} tokens at once; it runs {kv.n_at_once:,} ({kv.n_slots:,} places)"
        ),
    )


def _load_rows(plan: CapacityPlan) -> Iterator[tuple[str, str]]:
    steady, band = plan.steady, f"± {plan.uncertainty:.0%}"
    yield "load", plan.load.text()
    if steady.is_overloaded or plan.load.rate_per_s >= plan.most_rate_per_s:
        yield "", f"MORE than it carries: {count_rate(plan.most_rate_per_s)} requests/s at most, {band}"
    else:
        verdict = "carried" if plan.is_carried else f"TIGHT: above {ADVISED_SHARE:.0%} of what it carries"
        yield "", f"{verdict}, {plan.load.rate_per_s / plan.most_rate_per_s:.0%} of the most"
        yield (
            "expected",
            (
                f"first token after {_ms(steady.first_token_s)}, then {_ms(steady.token_s)} a token,"
                f" {steady.n_sequences * plan.placement.replicas:.1f} sequences at once, {band}"
            ),
        )
    tokens = count_text(round(plan.most_rate_per_s * plan.load.output_tokens))
    yield (
        "at most",
        (
            f"{count_rate(plan.most_rate_per_s)} requests/s ({tokens} output tokens/s), {band};"
            f" advised {count_rate(plan.advised_rate_per_s)} ({ADVISED_SHARE:.0%})"
        ),
    )
    shares = sorted(plan.parts.items(), key=lambda item: -item[1])
    spent = ", ".join(f"{part.value} {share:.0%}" for part, share in shares if share >= _LEAST_SHARE)
    yield "limit", f"{plan.limit.value}; a full replica's time: {spent}"
    yield "from", _source(plan)


def _source(plan: CapacityPlan) -> str:
    without = "without speculation and without equal beginnings of prompts, which both add"
    if plan.is_measured:
        return f"measured on this machine just now, {without}"
    speed = "bandwidth and arithmetic of the GPU" if plan.placement.gpus else "a guess of the speed of these cores (--measure)"
    return f"computed from {speed}, {without}"


def _need_rows(plan: CapacityPlan) -> Iterator[tuple[str, str]]:
    needs = plan.needs
    yield "host", f"{size_text(needs.memory_bytes)} of memory, {counted(plan.gateways_needed, 'gateway')}"
    yield (
        "disk",
        (
            f"{size_text(needs.model_bytes)} for the model, {size_text(needs.disk_bytes)} for logs, page files and journals"
            f" (journals alone {size_text(needs.journal_bytes)})"
        ),
    )


def _layout(plan: CapacityPlan) -> str:
    shape = f"--tp {plan.placement.tp} --replicas {plan.placement.replicas}"
    return f"{shape}: {count_rate(plan.most_rate_per_s)} requests/s at most, {_ms(plan.steady.token_s)} a token"


def _layout_json(plan: CapacityPlan) -> dict[str, Any]:
    return {
        "tp": plan.placement.tp,
        "replicas": plan.placement.replicas,
        "most_requests_per_s": plan.most_rate_per_s,
        "token_s": plan.steady.token_s,
    }


def _line(name: str, text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=name.ljust(_NAME), subsequent_indent=" " * _NAME, break_long_words=False)


def count_rate(rate_per_s: float) -> str:
    """A rate with three digits."""
    return f"{rate_per_s:.3g}" if rate_per_s < 1000 else f"{rate_per_s:,.0f}"


def _ms(seconds: float) -> str:
    return f"{seconds * _MS:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
