"""What a calibration makes of runs whose times are known."""

from __future__ import annotations

import pytest

from supervisor.capacity.calibration import calibrate
from supervisor.capacity.workload import OfferedLoad

LOAD = OfferedLoad(1, 512, 128)


class KnownServer:
    """Runs take what a formula says, on a clock of their own."""

    def __init__(self, token_s: float, prompt_s: float, start_s: float) -> None:
        self.token_s, self.prompt_s, self.start_s = token_s, prompt_s, start_s
        self.now_s = 0.0
        self.sizes = list[int]()
        self.computed = set[tuple[int, int, int]]()

    def run(self, n: int, prompt_tokens: int, output_tokens: int, seed: int) -> float:
        """Seconds of n requests at once; a step takes longer with more sequences, a prompt that was computed before none."""
        prompts = {(seed, index, prompt_tokens) for index in range(n)}
        n_new = len(prompts - self.computed)
        self.computed |= prompts
        took_s = self.start_s + n_new * prompt_tokens * self.prompt_s + (output_tokens - 1) * self.step_s(n)
        self.now_s += took_s
        self.sizes.append(n)
        return took_s

    def step_s(self, n: int) -> float:
        return self.token_s * (1 + n / 32)


def test_it_finds_the_times_of_a_server() -> None:
    server = KnownServer(token_s=0.01, prompt_s=1e-4, start_s=0.003)
    found = calibrate(server.run, LOAD, 64, lambda: server.now_s)
    assert [size for size, _ in found.steps] == [1, 4, 16, 64]
    assert [found.step_s(n, 576) for n in (1, 4, 16, 64)] == pytest.approx([server.step_s(n) for n in (1, 4, 16, 64)])
    assert found.prompt_s(512) == pytest.approx(512e-4 + 0.003 / 4), "four prompts of 512 at once"
    assert found.lone_prompt_s(512) == pytest.approx(512e-4 + 0.003)


def test_a_slow_server_is_not_asked_for_more_than_the_budget_allows() -> None:
    server = KnownServer(token_s=1.0, prompt_s=0.01, start_s=0.1)
    found = calibrate(server.run, LOAD, 256, lambda: server.now_s)
    assert [size for size, _ in found.steps] == [1]
    assert max(server.sizes) == 4, "prompts that are computed together"


def test_no_more_sequences_are_measured_than_a_replica_holds() -> None:
    server = KnownServer(token_s=0.001, prompt_s=1e-6, start_s=0.001)
    said: list[str] = []
    assert [size for size, _ in calibrate(server.run, LOAD, 10, lambda: server.now_s, said.append).steps] == [1, 4, 10]
    assert [line.partition(" takes")[0] for line in said][1:] == [
        f"a step of {n}" for n in ("1 sequence", "4 sequences", "10 sequences")
    ]
