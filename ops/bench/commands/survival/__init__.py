"""Load tools that harm servers, and what surviving costs."""
