"""What web pages may do: which hosts and origins are served, and the headers that let a page read an answer."""
