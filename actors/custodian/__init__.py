"""The custodian: holds the listening socket and duplicates of client connections, so that they outlive a gateway."""
