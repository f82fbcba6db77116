"""Uncertainty of a result: resampling, confidence intervals, tests; and why layers are similar."""
