"""The vault of one replica: keeps the descriptors of its KV memory, so that the memory outlives the processes that use it."""
