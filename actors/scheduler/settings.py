"""The scheduler's section of the configuration."""

from __future__ import annotations

from typing import Annotated

import msgspec

from actors.pages.eviction.choice import EvictionName
from actors.pages.tier_loads import TierLoads
from actors.scheduler.sequences.policy import LateRequests, PolicyName


class SchedulerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits and policies of one scheduler. The policies are declared in actors.scheduler.sequences.policy and actors.pages."""

    tp: Annotated[int, msgspec.Meta(ge=1)] = 1  # ranks of the gang, those of all stages
    pp: Annotated[int, msgspec.Meta(ge=1)] = 1  # stages of the gang's pipeline: so many plans are computed at once
    # plans sent before a result is back; 2 or more keep the device busy between steps, and up to two more are sent to a GPU
    # that has waited for its plans; 1: never another one
    plans_in_flight: Annotated[int, msgspec.Meta(ge=1, le=4)] = 2
    step_tokens: Annotated[int, msgspec.Meta(ge=0, le=1_048_576)] = 0  # token budget of a step; 0: the gang's limit
    # a step with prompts may last this long, in seconds, while sequences decode; 0: no limit by time; not set: 0.03 on GPUs,
    # 0 on CPU cores
    step_s: Annotated[float, msgspec.Meta(ge=0.0, le=60.0)] | None = None
    # with the policy priority, while urgent requests come: no step should last longer, in seconds, so that they wait less;
    # prompts and sequences that decode take turns, which costs throughput; 0: nobody takes turns
    urgent_step_s: Annotated[float, msgspec.Meta(ge=0.0, le=60.0)] = 0.0
    # with the policy priority, on gangs that can do so: urgent prompts of at most so many tokens are computed beside the steps
    # in flight, and wait for none of them; 0: none are
    urgent_tokens: Annotated[int, msgspec.Meta(ge=0, le=1_048_576)] = 1024
    # part of the device's time that prompts may take while sequences decode
    prompt_share: Annotated[float, msgspec.Meta(ge=0.1, le=0.95)] = 0.6
    max_waiting: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 16_384  # sequences in the queue; above it: refused for now
    # levels of degradation: if what waits takes so long, in seconds, no drafts are verified; twice: fewer answers to a prompt
    # (gateway.degraded_n); 4 times: shorter ones (gateway.degraded_max_tokens); 8 times: new requests are shed; 0: no levels
    degraded_wait_s: Annotated[float, msgspec.Meta(ge=0.0, le=86_400.0)] = 0.0
    # messages that a gateway may leave unconfirmed before its sequences pause
    unacked_messages: Annotated[int, msgspec.Meta(ge=2, le=100_000)] = 512
    policy: PolicyName = PolicyName.PRIORITY  # which sequences are planned first, and which give way
    # with the policy priority: seconds of waiting that count as one level of priority; 0: none do
    ageing_s: Annotated[float, msgspec.Meta(ge=0.0, le=86_400.0)] = 10.0
    # with the policy sla: whether requests that cannot meet their ttft_ms or deadline_ms come later, or are refused
    late: LateRequests = LateRequests.DEMOTE
    # sequences that may enter before one that comes first and finds no pages; 0: none
    most_passed: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 16
    prefix_reuse: bool = True  # prompts that begin like earlier ones are not computed again
    eviction: EvictionName = EvictionName.LRU  # which cached pages are overwritten first
    # with worker.kv_least_bytes: the memory of pages that were not needed for one to two times so long, in seconds, is given
    # back to the system
    kv_quiet_s: Annotated[float, msgspec.Meta(ge=0.1, le=86_400.0)] = 60.0
    # with worker.kv_least_bytes or worker.host_cache_least_bytes: pages that are kept beside those that were needed lately, as
    # a part of these
    kv_spare_share: Annotated[float, msgspec.Meta(ge=0.0, le=10.0)] = 0.25
    follows_load: bool = False  # worker.kv_least_bytes is set: the pages in use follow the load
    # with worker.host_cache_least_bytes: the memory of pages in the host tier that nobody asked for in one to two times so
    # long, in seconds, is given back to the system
    host_quiet_s: Annotated[float, msgspec.Meta(ge=0.1, le=86_400.0)] = 600.0
    host_follows_load: bool = False  # worker.host_cache_least_bytes is set: the places in use follow the load
    # when pages come back from the host tier: if that takes less time than to compute them, or always
    tier_loads: TierLoads = TierLoads.FASTER
    # directory, as an absolute path, in which each scheduler records the pages of its sequences; empty: nothing is recorded
    trace_dir: Annotated[str, msgspec.Meta(pattern=r"^(/.*)?$", description="an absolute path")] = ""
    speculation: bool = True
    vault: bool = False  # the KV memory outlives gangs, and this scheduler records there what its pages hold
    tells_directory: bool = True  # the cache directory learns which pages it has; only other replicas make that worth while
    draft_depth: Annotated[int, msgspec.Meta(ge=1, le=32)] = 8  # drafts verified in one step at most
    grammar_drafts: bool = True  # tokens that a grammar allows alone are computed together
    # most sequences that run with drafts; with more, drafts cost more than they give
    draft_rows: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 8

    @property
    def most_in_flight(self) -> int:
        """Plans sent before a result is back: with several stages one for each, and one that waits."""
        return self.plans_in_flight if self.pp == 1 else max(self.plans_in_flight, self.pp + 1)
