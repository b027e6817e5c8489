"""What the plans in flight may still write, which an urgent step must not touch. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from actors.scheduler.planning.plan_builder import PlannedStep
from messages.steps import Plan


class PlansBeside:
    """The pages of the plans in flight that run in order. A sequence may leave its pages while a step still writes there, so
    they are noted when a plan is sent."""

    def __init__(self) -> None:
        self._pages: dict[int, list[int]] = {}  # by the first step of a plan

    def sent(self, planned: PlannedStep) -> None:
        """A plan has been sent. To be called before another one is made."""
        pages = planned.written_pages()
        if planned.plan.copies is not None:
            pages += planned.plan.copies.sources.tolist()
        self._pages[planned.plan.step] = pages

    def pages(self, in_flight: Iterable[PlannedStep]) -> set[int] | None:
        """The pages that these plans write, and those that they copy; None if one of them was not noted. Others are
        forgotten."""
        steps = {planned.plan.step for planned in in_flight}
        self._pages = {step: pages for step, pages in self._pages.items() if step in steps}
        return set().union(*self._pages.values()) if len(self._pages) == len(steps) else None


def slots_of(in_flight: Iterable[PlannedStep]) -> set[int]:
    """The slots that these plans change on the ranks."""
    slots: set[int] = set()
    for planned in in_flight:
        slots |= _slots_of(planned.plan)
    return slots


def _slots_of(plan: Plan) -> set[int]:
    return {*plan.row_slots.tolist(), *plan.page_slots.tolist(), *(int(new.slot) for new in plan.new)}
