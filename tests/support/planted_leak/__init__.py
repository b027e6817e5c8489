"""A leak that a test plants in the processes of a server."""
