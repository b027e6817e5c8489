"""Answers for similar questions: a workload with paraphrases, played through the cache of the directory."""
