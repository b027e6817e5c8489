"""How waiting sequences get a slot and pages, and who gives way to them."""
