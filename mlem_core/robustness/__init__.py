"""What would change a conclusion: audit, flags, multiverse, claims."""
