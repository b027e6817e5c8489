"""`supervisor chat` and `supervisor run`: a model in the terminal."""
