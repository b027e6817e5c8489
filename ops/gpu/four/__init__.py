"""All runs that need four CUDA devices, by one command (`ops/gpu/four.sh`)."""
