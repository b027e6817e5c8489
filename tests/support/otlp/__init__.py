"""A stand-in for a collector of OpenTelemetry, and what tests ask of the traces that it got."""
