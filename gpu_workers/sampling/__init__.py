"""Sampling: the choice of the next token, log-probabilities, verification of drafts."""
