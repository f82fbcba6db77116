"""Storage on disk: a store of computations, and files that appear whole or not at all."""
