"""The cache directory: which replica holds which prefix. It only gives hints, so its death costs speed only."""
