"""Long series of kills."""
