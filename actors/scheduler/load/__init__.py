"""How much work a scheduler has, and what it does when that is too much."""
