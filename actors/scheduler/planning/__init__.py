"""Planning: what the next step computes, the plan message, and what a result changes."""
