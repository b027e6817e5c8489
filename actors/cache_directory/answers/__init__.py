"""All answers that the cache directory keeps: those for equal requests, which it shares, and those for similar questions."""
