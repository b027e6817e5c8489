"""Load tools: measure a running server, compare it with others, kill parts of it under load. `python -m ops.bench --help`."""
