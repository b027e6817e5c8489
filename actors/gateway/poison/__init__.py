"""What is remembered of requests that have harmed gangs: prompts in quarantine, and what a caller has done."""
