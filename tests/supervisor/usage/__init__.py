"""The lines of the status about what is used."""
