"""What the figure of decoding is exported from."""

from mlem_core.analysis.context import SelectionContext
from mlem_core.extensions.decoding.stage import DECODING


def small_analysis(sources):
    DECODING.get(SelectionContext.from_analysis(sources.small, sources.store))
    return sources.context(sources.small)


FIGURE_SOURCES = {"baseline_decoding": small_analysis}
