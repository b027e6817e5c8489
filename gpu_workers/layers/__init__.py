"""What models are built from: operations, attention over pages, sharded layers, groups of ranks."""
