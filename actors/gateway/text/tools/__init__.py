"""Tools: how a model is told of them, how the calls in its answers are found, and the grammars that force a call. Pure."""
