"""Text: tokenising, chat templates, incremental detokenising and stop strings."""
