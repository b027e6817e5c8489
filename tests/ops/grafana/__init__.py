"""Tests of the dashboards."""
