"""The data of one step: slots of sequences, host arrays, device tensors and their uploads."""
