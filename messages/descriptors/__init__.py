"""The descriptor store: a process that keeps file descriptors for others, so that memory and sockets outlive their users."""
