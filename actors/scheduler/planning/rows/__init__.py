"""The rows of plans, and what their results give: one by one, or all of the sequences that decode together as arrays."""
