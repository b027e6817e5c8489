"""Tests of the commands of the load tools."""
