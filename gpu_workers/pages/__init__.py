"""Forms of a host tier: compressed places, and on GPUs pinned memory to and from which pages move beside the steps."""
