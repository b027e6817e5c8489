"""Admission: what a door has parsed becomes a checked, tokenised order, or a refusal."""
