"""The next release, in processes that start when a file exists: the directory `site` goes into PYTHONPATH."""
