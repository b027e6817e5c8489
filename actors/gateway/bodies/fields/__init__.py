"""The fields of request bodies: their ranges, what each group of them asks for, and fields that the server does not have."""
