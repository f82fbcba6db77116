"""Noise ceilings of the RSA with a group of subjects, and how much of them models reach.

No model can be more similar to the subjects of a group than their differences allow. The lower
ceiling is the mean RSA of each subject with the mean of the others' ranks, the upper one that with
the mean of all, which holds the subject itself. Subjects are files, as members of a group.

Source: Nili et al. (2014).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.context import SelectionContext, Stage
from mlem_core.analysis.layer_sources import get_representations
from mlem_core.base.parallel import cores
from mlem_core.base.resources import check_free
from mlem_core.base.typing import Layer, counted, counting, layer_name
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.ranks import IN_MEMORY_BYTES, PairRanks, pair_ranks
from mlem_core.storage.store import Store

# What the features reach stands under this name beside models.
FEATURES = "features"


def noise_ceiling(ranks: Iterable[NDArray[np.uint32]], layers: PairRanks) -> tuple[float, float]:
    """Lower and upper noise ceiling of the RSA with n subjects.

    As `rsatoolbox.inference.boot_noise_ceiling` with the method "spearman".
    Ranks (n_pairs,) are doubled; `layers` has room for 2n + 1 of them.
    """
    n, total = layers.n_layers // 2, np.zeros(layers.n_pairs)
    for subject, subject_ranks in enumerate(ranks):
        layers.put(subject, subject_ranks)
        total += subject_ranks
    for subject in range(n):
        others = total - layers.read(subject, 0, layers.n_pairs)
        layers.put(n + subject, pair_ranks(others, overwrite=True, threads=cores()))
    layers.put(2 * n, pair_ranks(total, overwrite=True, threads=cores()))
    rsa = layers.rsa()
    return float(np.diagonal(rsa[:n, n : 2 * n]).mean()), float(rsa[:n, 2 * n].mean())


def subject_layers(analysis: Analysis) -> dict[tuple[str, int], tuple[Layer, ...]]:
    """Layers of the subjects of each group of two or more files, by group and number of the layer.

    A layer is there where every subject has it, under the same name.
    """
    files, names = dict(analysis.spec.representations), analysis.layer_names
    there, layers_by_group = dict.fromkeys(analysis.layers), {}
    for group, members in analysis.spec.groups:
        subjects = [member for member in members if member in {model for model, _ in there}]
        if len(subjects) < 2 or not {*subjects} <= {*files}:
            continue
        for number in (number for model, number in there if model == subjects[0]):
            layers = tuple((subject, number) for subject in subjects)
            if {*layers} <= {*there} and len({names.get(layer) for layer in layers}) == 1:
                layers_by_group[group, number] = layers
    return layers_by_group


def compute_noise_ceilings(context: SelectionContext) -> pd.DataFrame:
    """Noise ceilings of the groups of an analysis, over its pairs.

    Raises InputError: a file of a subject that has gone or changed.

    Returns
    -------
    group, layer (its number), lower, upper, n (subjects); no rows without such a group
    """
    analysis, store = context.analysis, context.required_store
    rows, layers = [], subject_layers(analysis)
    subjects = dict.fromkeys(model for every in layers.values() for model, _ in every)
    sources = {subject: get_representations(analysis, subject, store) for subject in subjects}

    def ranks(layer: Layer) -> NDArray[np.uint32]:
        squared = squared_distances(
            sources[layer[0]][layer[1]],
            analysis.spec.neural_distance(layer[0]),
            design=analysis.design,
            layer=layer_name(layer),
            threads=cores(),
        )
        return pair_ranks(squared, overwrite=True, threads=cores())

    progress = counting(context.report, "noise ceilings", "layers")
    for (group, number), every in counted(layers.items(), len(layers), progress):
        room = _room(2 * len(every) + 1, analysis.design.n_pairs, store)
        rows.append((group, number, *noise_ceiling(map(ranks, every), room), len(every)))
    return pd.DataFrame(rows, columns=["group", "layer", "lower", "upper", "n"])


def _ceilings_key(context: SelectionContext) -> dict[str, Any]:
    analysis = context.analysis
    return analysis.key(analysis.layers, groups=analysis.spec.groups)


NOISE_CEILINGS = Stage[pd.DataFrame](
    "noise-ceilings", 1, pd.DataFrame, compute_noise_ceilings, key=_ceilings_key
)


def _room(n_layers: int, n_pairs: int, store: Store) -> PairRanks:
    what, fewer = f"the noise ceiling over {n_pairs:,} pairs", "choose fewer pairs (--pairs)"
    ranks = 4 * n_layers * n_pairs
    disk = ranks * (ranks > IN_MEMORY_BYTES)
    check_free(store.root, 24 * n_pairs + ranks - disk, disk, what, fewer)
    return PairRanks(n_layers, n_pairs, store.root)


def ceiling_tables(context: SelectionContext) -> dict[str, pd.DataFrame]:
    """Tables of the noise ceilings and of what reaches them, by file name; none without subjects.

    model_ceilings.csv has a row for each layer of a system outside the group, with its mean RSA
    with the subjects and the shares of the ceilings (missing where these are not above 0). Rows of
    `FEATURES` have no layer, and the mean held-out ρ of the subjects: what the features, weighted
    for each subject, predict of its distances.

    Raises as `compute_noise_ceilings`.
    """
    analysis, results = context.analysis, context.results
    there = {*results.layers}
    layers = {at: every for at, every in subject_layers(analysis).items() if {*every} <= there}
    if not layers:
        return {}
    ceilings = NOISE_CEILINGS.get(context)
    ceilings = ceilings[[(row.group, row.layer) in layers for row in ceilings.itertuples()]]
    rho = results.scores.groupby(["model", "layer"])["rho"].mean()
    place = {layer: at for at, layer in enumerate(analysis.layers)}
    tables = []
    for group, number, lower, upper, _ in ceilings.itertuples(index=False):
        subjects, members = list(layers[group, number]), dict(analysis.spec.groups)[group]
        others = [layer for layer in results.layers if layer[0] not in members]
        at, at_subjects = ([place[layer] for layer in rows] for rows in (others, subjects))
        rsa = analysis.rsa[np.ix_(at, at_subjects)].mean(axis=1) if others else []
        table = pd.DataFrame([(FEATURES, None), *others], columns=["model", "layer"])
        table = table.assign(group=group, group_layer=number, rsa=[rho.loc[subjects].mean(), *rsa])
        for name, end in (("share_of_lower", lower), ("share_of_upper", upper)):
            table[name] = table["rsa"] / (end if end > 0 else np.nan)
        tables.append(table.astype({"layer": "Int64"}))
    return {"noise_ceilings.csv": ceilings, "model_ceilings.csv": pd.concat(tables)}
