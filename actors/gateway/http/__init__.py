"""HTTP: the server, its connections, the OpenAI routes and the bodies of requests and answers."""
