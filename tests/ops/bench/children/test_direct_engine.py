"""The workloads that engines are compared on, and the engine driven without actors: right counts, no lost page."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.hash_chain_engine import HashChainEngine
from gpu_workers.settings import WorkerSettings
from messages.generation.sampling import Sampling
from ops.bench.children.direct_child import jobs_of
from ops.bench.children.direct_engine import DirectJob, DirectRun
from ops.bench.commands.gpu_batch import nano_workload
from tests.support.depth import examples


def test_the_batch_workload_is_the_peers_draw_for_draw() -> None:
    prompts, outputs = nano_workload(256)
    assert (sum(map(len, prompts)), sum(outputs)) == (142_827, 133_966)
    assert max(map(max, prompts)) == 10_000


class Watched(HashChainEngine):
    """Counts what it was asked to compute. A plan that is not right is refused by the engine's own slot table."""

    def __init__(self, settings: WorkerSettings) -> None:
        super().__init__(settings)
        self.sampled = 0

    def collect(self, launched):
        """The engine's results, whose tokens are counted on the way."""
        for result in super().collect(launched):
            self.sampled += len(result.ids)
            yield result


@given(
    lengths=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 40)), min_size=1, max_size=12),
    n_slots=st.integers(1, 6),
    step_tokens=st.integers(1, 64),
    lease=st.integers(1, 8),
    pages=st.integers(9, 40),
)
@examples(60)
def test_the_direct_run_samples_every_token_whatever_the_engine_can_hold(
    lengths: list[tuple[int, int]], n_slots: int, step_tokens: int, lease: int, pages: int
) -> None:
    engine = Watched(
        WorkerSettings(
            n_slots=n_slots, max_step_tokens=step_tokens, max_lease_steps=lease, hash_chain_pages=pages, max_length=256
        )
    )
    jobs = [DirectJob(list(range(n_in)), n_out) for n_in, n_out in lengths]
    for epoch in (1, 2):
        engine.sampled = 0
        times = DirectRun(engine, jobs, Sampling(temperature=0.0), epoch).run()
        assert engine.sampled == sum(n_out for _, n_out in lengths)
        assert times.wall_s >= times.prefill_s >= times.first_token_s > 0


def test_jobs_are_drawn_from_their_seed() -> None:
    question = {"lengths": [[3, 5], [7, 1]], "seed": 4, "vocabulary": 100}
    assert jobs_of(question) == jobs_of(question)
    assert [(len(job.prompt), job.n_output) for job in jobs_of(question)] == [(3, 5), (7, 1)]
