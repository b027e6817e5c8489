"""The kernels that choose the next token of each row: penalties and bans, filters, the choice."""
