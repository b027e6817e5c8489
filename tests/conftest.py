"""Property tests are bounded by examples, not by time: a slow machine fails none."""

from hypothesis import settings

from tests.support.depth import DEPTH

settings.register_profile("examples", deadline=None, max_examples=60 * DEPTH)
settings.load_profile("examples")
