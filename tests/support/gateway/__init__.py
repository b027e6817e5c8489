"""Support for gateway tests: a gateway in memory, a scripted scheduler, a faulty disk, a process that writes a journal."""
