"""Admission: a request that HTTP or ZeroMQ has parsed is checked and tokenised, or refused."""
