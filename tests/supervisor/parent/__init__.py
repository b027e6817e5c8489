"""Tests of the supervisor's parent and of its link."""
