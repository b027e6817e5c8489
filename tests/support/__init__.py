"""What tests share: actors over in-memory mailboxes, real servers, example messages, settings of random tests."""
