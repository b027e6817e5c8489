"""Traces of requests: samplers, spans, files that wait for the collector, and whole gateways."""
