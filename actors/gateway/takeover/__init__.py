"""Takes over the HTTP connections of a dead incarnation: goes on with each response at the byte at which it was cut."""
