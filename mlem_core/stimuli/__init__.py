"""The stimuli: reading and checking a table, roles of its columns, folds, built-in sets."""
