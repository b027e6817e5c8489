"""The documents as a site: pages and navigation, the reference drawn from the endpoints, and the program that builds it."""
