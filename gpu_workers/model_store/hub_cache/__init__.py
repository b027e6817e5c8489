"""Files of the Hugging Face hub: large ones are fetched here, and what is in the hub client's cache is found and removed."""
