"""Answers of models, as tests write them."""
