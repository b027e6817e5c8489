"""Grammars: which tokens may follow in an answer that has to match one. Masks are computed on the host by llguidance."""
