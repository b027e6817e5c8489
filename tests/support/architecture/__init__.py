"""What the tests of the architecture share."""
