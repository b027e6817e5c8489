"""The dense decoders of the Llama line: Llama 2 and 3, Mistral, SmolLM2, Qwen2, Qwen3, and models that only name
their tensors differently. `config` reads config.json without torch, `weights` reads the checkpoint, `model` computes."""
