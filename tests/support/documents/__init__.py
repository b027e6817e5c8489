"""The code that the documents show, and what tests know of each piece of it."""
