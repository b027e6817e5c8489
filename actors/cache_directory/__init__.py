"""The cache directory: which replica holds which prefix. It only gives hints; its death costs nothing but speed."""
