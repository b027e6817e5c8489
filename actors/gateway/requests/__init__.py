"""A request and its sequences: what was ordered, what is visible, who reads it, why it was refused."""
