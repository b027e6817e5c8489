"""Speculation: proposes continuations that verification may accept. Its death costs nothing but speed."""
