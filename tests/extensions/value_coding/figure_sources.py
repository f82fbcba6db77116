"""What the figures of values are exported from: an analysis with a feature coded by value."""

FIGURE_SOURCES = {"values_matrices": lambda sources: sources.context(sources.small)}
