"""The deciders: one folder for each kind of actor; `actor.py` is the loop they share, `pages` the page arithmetic."""
