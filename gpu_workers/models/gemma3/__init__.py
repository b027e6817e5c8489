"""Text models of Gemma 3: norms around attention and feed-forward, and layers with a sliding window between global ones.
`config` reads config.json without torch, `weights` reads the checkpoint, `model` computes."""
