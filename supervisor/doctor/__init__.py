"""`supervisor doctor`: what of this machine would keep a server from working well, and how to mend it."""
