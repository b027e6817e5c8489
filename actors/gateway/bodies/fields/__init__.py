"""Fields of request bodies that the server does not have: which are ignored, which are refused, and what clients are told."""
