"""The sub-commands of `python -m ops.bench`, one file each: options in, a call, a report out."""
