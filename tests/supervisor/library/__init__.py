"""supervisor pull, models, show and rm."""
