"""What one tenant of a server can do to another: what it learns from times, and how it disturbs"""
