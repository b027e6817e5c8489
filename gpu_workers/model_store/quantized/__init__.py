"""How quantised checkpoints store their weights, as `quantization_config` says it. No torch here."""
