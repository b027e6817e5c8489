"""What watching a server costs: who watches, what each server was measured with, and the ratios."""
