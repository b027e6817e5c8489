"""`supervisor pull | models | show | rm`: the models on this machine."""
