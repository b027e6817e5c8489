"""The text of the served model."""
