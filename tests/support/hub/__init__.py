"""A server that behaves like the Hugging Face hub, with faults."""
