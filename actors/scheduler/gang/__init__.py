"""The gang as its scheduler sees it, and the search for a sequence that kills it."""
