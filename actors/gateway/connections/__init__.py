"""Open connections of clients, by whose they are."""
