"""The directories of a server and the files in them: what operators find there, and what the next supervisor needs."""
