"""What operators use: the command line, calls to a running server and its answers, shutdown, the status table, the display."""
