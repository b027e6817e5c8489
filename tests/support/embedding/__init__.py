"""What tests of embeddings share."""
