"""The worker process: its actor, the step thread, agreement between ranks, metrics."""
