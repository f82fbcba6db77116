"""Tidy table → Plotly figure.

Pure functions. Backgrounds are transparent and text has no colour of its own, so that a figure
sits on a light page as on a dark one. What a user wrote (names of features, cells) goes through
`style.plain`, because Plotly reads its texts as a small HTML.
"""

from mlem_core.figures.audit import audit_map, specification_curve
from mlem_core.figures.compare import importance_scatter, two_layers
from mlem_core.figures.export import (
    DPI,
    FONTS,
    WIDTHS_MM,
    Paper,
    as_file,
    can_write_images,
    image,
    in_narrow_window,
    on_paper,
    one_browser,
)
from mlem_core.figures.groups import (
    group_profiles,
    group_similarity,
    trajectories,
    universality,
)
from mlem_core.figures.maps import layer_maps
from mlem_core.figures.methods import (
    method_agreement,
    method_scores,
    noise_agreement,
    published_values,
    unit_scores,
)
from mlem_core.figures.naming import naming
from mlem_core.figures.profiles import profiles, with_interactions
from mlem_core.figures.similarity import partial_matrix, similarity_matrices
from mlem_core.figures.stimuli import feature_correlations, feature_counts
from mlem_core.figures.stimulus_maps import map_panels, nested_map, stimulus_map
from mlem_core.figures.style import GREY, Annotations
from mlem_core.figures.two_analyses import (
    importance_differences,
    side_by_side,
    similarity_differences,
)
from mlem_core.figures.value_distances import (
    value_lines,
    value_map,
    value_matrices,
    value_scatter,
)
from mlem_core.figures.why import term_matrices, waterfall

__all__ = [
    "DPI",
    "FONTS",
    "GREY",
    "WIDTHS_MM",
    "Annotations",
    "Paper",
    "audit_map",
    "can_write_images",
    "as_file",
    "feature_correlations",
    "feature_counts",
    "group_profiles",
    "group_similarity",
    "image",
    "importance_differences",
    "in_narrow_window",
    "importance_scatter",
    "layer_maps",
    "map_panels",
    "method_agreement",
    "method_scores",
    "naming",
    "nested_map",
    "noise_agreement",
    "on_paper",
    "one_browser",
    "partial_matrix",
    "profiles",
    "published_values",
    "side_by_side",
    "similarity_differences",
    "similarity_matrices",
    "specification_curve",
    "stimulus_map",
    "term_matrices",
    "trajectories",
    "two_layers",
    "unit_scores",
    "universality",
    "value_lines",
    "value_map",
    "value_matrices",
    "value_scatter",
    "waterfall",
    "with_interactions",
]
