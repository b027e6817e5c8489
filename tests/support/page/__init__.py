"""What tests of the page at / need."""
