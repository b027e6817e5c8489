"""One scheduler per replica: it owns order, pages and steps, and waits for no other actor before it plans."""
