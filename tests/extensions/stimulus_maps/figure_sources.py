"""What the maps of a whole model are exported from; others are in the example."""

from mlem_core import stimulus_map


def small_maps(sources):
    for layer in sources.small.layers:
        stimulus_map(sources.small, *layer, sources.store)
    return sources.context(sources.small, mapped=sources.small.layers[0][0])


FIGURE_SOURCES = {"map_panels": small_maps}
