"""Embeddings: one vector for each text, by encoders of the BERT family, in a process beside the ranks."""
