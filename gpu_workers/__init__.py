"""The worker processes, one for each rank. The only package that imports torch; `gpu_workers.model_store` does not."""
