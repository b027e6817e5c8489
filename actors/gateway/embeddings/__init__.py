"""Embeddings at a gateway: the tokenizer of the embedding model, and the texts on their way to the embedder and back."""
