"""Embeddings: one vector for each text, by encoders of the BERT family and by decoders, in a process beside the ranks."""
