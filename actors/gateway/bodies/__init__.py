"""The JSON bodies that requests come in at every door: their fields, what is wrong with one, and what one asks for."""
