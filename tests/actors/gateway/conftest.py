"""Property tests on a busy machine: bounded by examples, not by milliseconds."""

from hypothesis import settings

settings.register_profile("gateway", deadline=None, max_examples=60)
settings.load_profile("gateway")
