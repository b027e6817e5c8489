"""The disk tier of one rank: a file with places for pages, and the thread that reads and writes it."""
