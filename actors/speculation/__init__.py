"""Speculation: proposes continuations that verification may accept. May die at any time without an effect but speed."""
