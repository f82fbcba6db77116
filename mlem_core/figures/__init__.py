"""Tidy table → Plotly figure, a module a figure.

What draws is a pure function; below it a module has the record of the figure, which takes caption
and tables from an analysis (`mlem_core.figures.plots` has all of them).

Backgrounds are transparent and text has no colour of its own, so that a figure sits on a light page
as on a dark one. What a user wrote (names of features, cells) goes through `style.plain`, because
Plotly reads its texts as a small HTML.
"""

from mlem_core.figures.compare import importance_scatter, two_layers
from mlem_core.figures.context import with_interactions
from mlem_core.figures.export import (
    as_file,
    as_files,
    can_write_images,
    image,
    on_dark_page,
    one_browser,
)
from mlem_core.figures.groups import group_profiles, group_similarity, trajectories, universality
from mlem_core.figures.maps import layer_maps
from mlem_core.figures.naming import naming
from mlem_core.figures.press import DPI, FONTS, WIDTHS_MM, Paper, in_narrow_window, on_pages
from mlem_core.figures.profiles import profiles
from mlem_core.figures.robustness import audit_map
from mlem_core.figures.similarity import similarity_matrices
from mlem_core.figures.stimuli import feature_correlations, feature_counts
from mlem_core.figures.stimulus_maps import map_panels, stimulus_map
from mlem_core.figures.style import GREY, Annotations
from mlem_core.figures.terms import term_matrices
from mlem_core.figures.value_distances import value_matrices
from mlem_core.figures.why import waterfall

__all__ = [
    "Annotations", "DPI", "FONTS", "GREY", "Paper", "WIDTHS_MM", "as_file", "as_files", "audit_map",
    "can_write_images", "feature_correlations", "feature_counts",
    "group_profiles", "group_similarity", "image", "importance_scatter",
    "in_narrow_window", "layer_maps", "map_panels",
    "naming", "on_dark_page", "on_pages", "one_browser",
    "profiles",
    "similarity_matrices", "stimulus_map", "term_matrices",
    "trajectories", "two_layers", "universality", "value_matrices",
    "waterfall", "with_interactions",
]  # fmt: skip
