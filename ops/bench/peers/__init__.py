"""This server beside others: their processes, and the same work for each of them by turns."""
