"""Streams and answers over HTTP as a load generator reads them."""
