"""Messages about what is cached: prefixes of prompts, pages that leave a device, answers to similar questions."""
