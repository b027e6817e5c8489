"""The page at `/`: its files, and what it shows of the server, once a second and only while somebody looks."""
