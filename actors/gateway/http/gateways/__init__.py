"""A call for a request that another gateway owns: how it is forwarded over HTTP, and the answer brought back."""
