"""The architectures a rank can run, one family a file. Callers go through `registry`."""
