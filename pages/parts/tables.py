"""Tables of results as the pages show them, and as LaTeX."""

from __future__ import annotations

from mlem_core.report.tables import importance_of, pairs_of_layers, profile_table

__all__ = ["importance_of", "pairs_of_layers", "profile_table"]
