"""How an answer reaches its client over HTTP."""
