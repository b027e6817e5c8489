"""`supervisor drill`: harms a server while clients stream; reports what was lost or wrong, and how long streams paused."""
