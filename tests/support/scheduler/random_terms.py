"""Random terms that scheduling policies look at."""

from __future__ import annotations

import random
from typing import Any


def random_terms(rng: random.Random, page_share: float = 1.0) -> dict[str, Any]:
    """Priority, caller, weight and deadlines of one sequence. page_share: of the first of four callers; the others have 1."""
    caller = rng.randrange(4)
    terms: dict[str, Any] = {"priority": rng.randint(0, 2), "caller": bytes([caller]) * 8, "weight": 1.0 + caller}
    if not caller:
        terms["page_share"] = page_share
    for name in ("ttft_ms", "deadline_ms"):
        if rng.random() < 0.3:
            terms[name] = rng.choice([1.0, 1e3, 1e6])
    return terms
