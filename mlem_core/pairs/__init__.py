"""Pairs of stimuli: distances, ranks, columns, their second moments, and those that are scored."""
