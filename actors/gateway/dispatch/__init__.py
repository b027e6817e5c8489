"""Running requests: each is given to a replica, its tokens are taken in, recorded and shown; recovery after a death."""
