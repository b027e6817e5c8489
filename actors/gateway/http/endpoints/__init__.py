"""The endpoints of the HTTP API, a file for each group. A new file is added to the list in `http/api.py`."""
