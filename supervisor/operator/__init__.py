"""What operators use: orders and their server, client calls, shutdown, the status table, the display of a start."""
