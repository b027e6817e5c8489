"""Habits of users of other servers: variables of the environment, and commands of a chat."""
