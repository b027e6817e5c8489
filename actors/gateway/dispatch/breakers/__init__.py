"""Which replicas fail or are slow, and what that costs them: breakers, expected paces, budgets. All of it is pure."""
