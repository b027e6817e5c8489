"""The recorded terminal of the README: a real stream that goes on while its server's processes are killed."""
