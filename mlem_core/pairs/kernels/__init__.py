"""Loops that NumPy has no call for, compiled by numba: imported where they are first used."""

from mlem_core.base.resources import keep_compiled

keep_compiled()
