"""The cache directory: which replica holds which prefix. A hint that may die at any time without an effect but speed."""
