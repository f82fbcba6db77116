"""Loops that NumPy has no call for, compiled by numba: imported where they are first used."""
