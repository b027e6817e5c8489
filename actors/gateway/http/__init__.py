"""HTTP: the server, its connections, the endpoints, and the bodies of requests and answers."""
