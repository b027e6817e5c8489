"""One scheduler per replica: owns order, pages and steps; asks nobody before it plans."""
