"""The requests of this gateway from their acceptance to their end: recorded, published, kept, and recovered after a death."""
