"""Memory that outlives the process that uses it: shared memory, whose descriptors the replica's vault keeps."""
