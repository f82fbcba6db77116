"""Pairs of stimuli: distances, covariate patterns, ranks, and the pair table that sums them."""
