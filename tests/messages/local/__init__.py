"""A model in one program: flags, batches, and the private server with its life."""
