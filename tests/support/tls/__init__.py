"""What tests of TLS need."""
