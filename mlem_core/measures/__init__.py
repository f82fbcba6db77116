"""Measures on a fitted metric: importance, similarity of layers, and its decomposition."""
