"""What stands for a service manager in tests."""
