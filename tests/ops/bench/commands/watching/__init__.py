"""What the commands about watching measure on real servers."""
