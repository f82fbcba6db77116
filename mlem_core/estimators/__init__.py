"""The metric models that predict neural distances from features, and their registry."""
