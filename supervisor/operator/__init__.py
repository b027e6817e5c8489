"""The operator: orders, their server and client, shutdown, status tables and the terminal."""
