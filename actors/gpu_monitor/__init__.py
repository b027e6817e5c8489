"""The process that reads the sensors of the GPUs, so that a driver that hangs keeps nobody else from anything."""
