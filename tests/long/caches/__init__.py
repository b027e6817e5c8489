"""Long tests of what keeps pages beyond the device."""
