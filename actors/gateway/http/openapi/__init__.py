"""The description of the HTTP API, drawn from its endpoints and the structs of their bodies: /openapi.json and /docs."""
