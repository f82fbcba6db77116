"""Robustness of a conclusion: audit, flags, multiverse, claims."""
