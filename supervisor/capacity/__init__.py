"""`supervisor plan`: whether a model fits GPUs, and how much load a server carries, before anything is bought or started."""
