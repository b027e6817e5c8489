"""Traces of requests for OpenTelemetry: which are recorded, their spans, and how these reach a collector in spite of deaths."""
