"""`supervisor logs`: reads the log file of a server."""
