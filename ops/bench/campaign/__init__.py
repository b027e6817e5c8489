"""A campaign: faults in every phase of every actor of our own server, under streams of HTTP and ZeroMQ clients."""
