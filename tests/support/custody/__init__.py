"""What tests of kept descriptors share."""
