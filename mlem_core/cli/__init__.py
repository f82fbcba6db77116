"""The command line: what it takes and what its commands do."""
