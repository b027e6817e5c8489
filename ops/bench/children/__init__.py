"""The processes that a benchmark starts: the bare engine, a worker, transformers, an empty server."""
