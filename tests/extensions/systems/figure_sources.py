"""What the figures of groups of models are exported from.

The models of the example are one of each kind, and none is a checkpoint of a training.
"""

import itertools
from functools import cache

from mlem_core.extensions.systems.halves import HALVES
from mlem_core.figures.plots import FIGURES

OF_GROUPS = ("group_profiles", "group_similarity", "universality", "trajectories")
OF_GROUPS += ("property_correlations", *(name for name in FIGURES if name.startswith("system_")))


@cache
def five_groups(sources):
    """Five groups of up to three models, with properties, and two trainings of one of them."""
    kinds = ("mini-bert", "mini-gpt2", "mini-mamba", "mini-bert-causal", "mini-mamba-masked")
    groups = {kind: [f"{kind}{seed}" for seed in ("", "-s1", "-s2")] for kind in kinds[1:]}
    steps = [0, 500, 1000, 2000, 4000, 8000, 16_000, 143_000]
    first = [f"mini-bert@step{step}" for step in steps]
    second = [f"mini-bert-s1@step{step}" for step in (500, 1000)]
    members = [*first, *second, *itertools.chain.from_iterable(groups.values())]
    groups |= {kinds[0]: ["mini-bert@step143000"]}
    trajectories = {"mini-bert": first, "mini-bert, twice": first[1:3] + second}
    properties = (("objective of training", 2), ("width", 5), ("text", 3))
    labels = {name: [f"{factor}:{len(name) % n}" for factor, n in properties] for name in groups}
    layers = {member: sources.layers(3) for member in members}
    analysis = sources.analyze(layers, groups=groups, trajectories=trajectories, labels=labels)
    context = sources.context(analysis)
    HALVES.get(context)
    return context


FIGURE_SOURCES = dict.fromkeys(OF_GROUPS, five_groups)
