"""The hands: one process per rank, the only folder that imports torch. (`gpu_workers.model_store` does without it.)"""
