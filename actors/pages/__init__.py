"""Pure page arithmetic, shared by scheduler, gateway and cache directory: no await, no socket, no clock."""
