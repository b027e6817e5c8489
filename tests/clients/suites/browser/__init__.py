"""Programs for pytest that drive a browser; `tests/clients/test_page.py` and its neighbours run them."""
