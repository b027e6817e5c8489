"""How an answer reaches its client over HTTP: as a stream of events, or as a whole."""
