"""What tests of caches on real servers share."""
