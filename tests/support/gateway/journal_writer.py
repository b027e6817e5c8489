"""A process that writes a journal and prints every callback to stdout. `test_journal` kills it."""

from __future__ import annotations

import asyncio
import sys

from actors.gateway.journal.journal import Journal
from actors.gateway.journal.records import StepRow, encode_step
from actors.gateway.requests.request_spec import RequestSpec
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms
from tests.support.gateway.journal_file import request_blob

N_REQUESTS = 4


def spec_of(number: int) -> RequestSpec:
    """The specification of request `number`."""
    return RequestSpec(
        request=f"r{number}",
        api="zeromq",
        created_s=0.0,
        prompts=[number.to_bytes(4, "little")],
        sampling=Sampling(temperature=0.0),
        terms=Terms(max_tokens=1_000_000),
        is_resumable=True,
    )


def token_of(number: int, at: int) -> int:
    """The token with number `at` of a request."""
    return number * 1_000_000 + at


def row_at(number: int, at: int) -> StepRow:
    """The row of one token."""
    return StepRow(number << 20, at, token_of(number, at).to_bytes(4, "little"))


async def main(path: str) -> None:
    """Write until killed."""
    journal = Journal(path)
    journal.open()
    journal.start()

    n_told = 0

    def report(text: str) -> None:
        nonlocal n_told
        n_told += 1
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def withdrawn() -> None:
        sys.exit("a disk that takes its time withdraws nothing")

    for number in range(1, N_REQUESTS + 1):
        journal.admission(number, request_blob(spec_of(number)), lambda number=number: report(f"admitted {number}"), withdrawn)
    at = 0
    while True:
        rows = [row_at(number, at) for number in range(1, N_REQUESTS + 1)]
        journal.step(encode_step(rows, []), lambda at=at: report(f"step {at}"))
        at += 1
        if at % 8 == 0:
            await asyncio.sleep(0)  # so that commits have several entries, and several commits happen in one turn of the loop
        while at - n_told > 128:  # let the writer's thread run
            await asyncio.sleep(0.001)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
