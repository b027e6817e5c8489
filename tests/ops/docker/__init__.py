"""The image."""
