"""What is remembered of requests that have harmed gangs."""
