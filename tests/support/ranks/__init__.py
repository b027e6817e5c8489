"""Ranks of real models in processes of their own."""
