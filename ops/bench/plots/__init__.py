"""Pictures of measured results for the documents: what a result is, and bars drawn from it as SVG."""
