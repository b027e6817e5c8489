"""The documents' code: every block of it is run or read by a test, or stands on a list with the reason why not."""
