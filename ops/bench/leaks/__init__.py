"""The leak watch: what every process of a server holds before and after many requests and many deaths."""
