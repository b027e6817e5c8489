"""A gateway in memory for tests: a rig, a fake scheduler, a disk that refuses."""
