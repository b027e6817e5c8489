"""Admission: a parsed request, from HTTP or ZeroMQ, becomes a checked, tokenised order, or a refusal."""
