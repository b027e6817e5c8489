"""Custody: the custodian process holds a duplicate of each client socket with an answer under way, for the next incarnation."""
