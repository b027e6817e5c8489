"""Tests of the campaign that is run on GPUs."""
