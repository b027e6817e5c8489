"""`supervisor bench`: measures a running server that speaks OpenAI's API."""
