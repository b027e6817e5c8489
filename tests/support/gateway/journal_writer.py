"""A process that writes a journal and says on stdout what it was called back for. Killed by `test_journal`."""

from __future__ import annotations

import asyncio
import sys

from actors.gateway.journal.journal import Journal
from actors.gateway.journal.records import StepRow, encode_order, encode_step
from actors.gateway.requests.order import Order
from messages.generation import Sampling, Terms

N_REQUESTS = 4


def order_of(number: int) -> Order:
    """The order of a request of this journal."""
    return Order(
        request=f"r{number}",
        api="front",
        created_s=0.0,
        prompts=[number.to_bytes(4, "little")],
        sampling=Sampling(temperature=0.0),
        terms=Terms(max_tokens=1_000_000),
        is_resumable=True,
    )


def token_of(number: int, at: int) -> int:
    """What the request says at a place."""
    return number * 1_000_000 + at


def row_at(number: int, at: int) -> StepRow:
    """One token's row."""
    return StepRow(number << 20, at, token_of(number, at).to_bytes(4, "little"))


async def main(path: str) -> None:
    """Write until killed."""
    journal = Journal(path)
    journal.open()
    journal.start()

    n_told = 0

    def say(text: str) -> None:
        nonlocal n_told
        n_told += 1
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def withdrawn() -> None:
        sys.exit("a disk that takes its time withdraws nothing")

    for number in range(1, N_REQUESTS + 1):
        journal.admit(number, encode_order(order_of(number)), lambda number=number: say(f"admitted {number}"), withdrawn)
    at = 0
    while True:
        rows = [row_at(number, at) for number in range(1, N_REQUESTS + 1)]
        journal.step(encode_step(rows, []), lambda at=at: say(f"step {at}"))
        at += 1
        if at % 8 == 0:
            await asyncio.sleep(0)  # several entries of one commit, several commits of one turn
        while at - n_told > 128:  # or the writer's thread never gets the interpreter
            await asyncio.sleep(0.001)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
