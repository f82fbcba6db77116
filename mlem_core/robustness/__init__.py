"""Robustness of a conclusion: audit, flags, erasing, two analyses."""
