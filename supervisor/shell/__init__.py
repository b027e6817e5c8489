"""What the shell needs to complete commands."""
