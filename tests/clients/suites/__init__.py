"""Programs for pytest in the environments of `tests/clients/environments`; `tests/clients/test_suites.py` runs them."""
