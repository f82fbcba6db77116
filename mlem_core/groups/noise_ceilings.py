"""Noise ceilings of the RSA with a group of subjects, and how much of them models reach.

No model can be more similar to the subjects of a group than their differences allow. The lower
ceiling is the mean RSA of each subject with the mean of the others' ranks, the upper one that with
the mean of all, which holds the subject itself: the best any model reaches lies between the two.

Subjects are files: members of a group that is named, or those of one file. Ceilings are of the
layers (regions, time points) that all of them have, and of the pairs that the analysis compares.

Source: Nili et al. (2014).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.maps import representations_of
from mlem_core.analysis.results import Results
from mlem_core.base.parallel import cores
from mlem_core.base.room import check_disk, check_memory
from mlem_core.base.typing import Counted, FloatArray, Layer, layer_name
from mlem_core.models.representations import Representations
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.ranks import IN_MEMORY_BYTES, PairRanks, pair_ranks
from mlem_core.storage.store import Stage, Store

# What the features reach stands under this name beside models.
FEATURES = "features"
_A_PAIR_BYTES = 8 * 3


class NoiseCeiling(NamedTuple):
    """Lower and upper noise ceiling."""

    lower: float
    upper: float


class _Bounds(NamedTuple):
    """Noise ceilings (n_layers, 2) of a group."""

    bounds: FloatArray


STAGE = Stage("noise-ceilings", 1, _Bounds)


def noise_ceiling(ranks: Iterable[NDArray[np.uint32]], n: int, kept: PairRanks) -> NoiseCeiling:
    """Noise ceiling of the RSA with n subjects, each with its doubled ranks (n_pairs,).

    As `rsatoolbox.inference.boot_noise_ceiling` with the method "spearman".

    Parameters
    ----------
    kept : room for 2n + 1 layers
    """
    total = np.zeros(kept.n_pairs)
    for subject, own in enumerate(ranks):
        kept.put(subject, own)
        total += own
    for subject in range(n):
        others = total - kept.read(subject, 0, kept.n_pairs)
        kept.put(n + subject, pair_ranks(others, overwrite=True, threads=cores()))
    kept.put(2 * n, pair_ranks(total, overwrite=True, threads=cores()))
    rsa = kept.rsa()
    lower, upper = np.diagonal(rsa[:n, n : 2 * n]), rsa[:n, 2 * n]
    return NoiseCeiling(float(lower.mean()), float(upper.mean()))


def subjects_of(analysis: Analysis) -> dict[str, dict[int, tuple[Layer, ...]]]:
    """Layers of the subjects of each group of two or more files, by the layer's number.

    A layer counts if every subject has it, under the same name.
    """
    files, names = dict(analysis.spec.representations), analysis.layer_names
    there = {model for model, _ in analysis.layers}
    found: dict[str, dict[int, tuple[Layer, ...]]] = {}
    for group, members in analysis.spec.groups:
        own = [one for one in members if one in there]
        if len(own) < 2 or not files.keys() >= {*own}:
            continue
        numbers = [number for model, number in analysis.layers if model == own[0]]
        layers = {number: tuple((one, number) for one in own) for number in numbers}
        same = {
            number: every
            for number, every in layers.items()
            if {*every} <= {*analysis.layers} and len({names.get(one) for one in every}) == 1
        }
        found |= {group: same} if same else {}
    return found


def _key(analysis: Analysis, layers: dict[int, tuple[Layer, ...]]) -> dict:
    return analysis.key([layer for every in layers.values() for layer in every])


def noise_ceilings(
    analysis: Analysis, store: Store, progress: Counted | None = None
) -> pd.DataFrame:
    """Noise ceilings of the groups of an analysis; kept in the store.

    Parameters
    ----------
    progress : called with the number of layers done and their total

    Returns
    -------
    group, layer (its number), lower, upper, n (subjects); no rows without such a group

    Raises
    ------
    InputError
        A file of a subject that has gone or changed.
    """

    def make(layers: dict[int, tuple[Layer, ...]]) -> _Bounds:
        subjects = [model for model, _ in next(iter(layers.values()))]
        sources = {one: representations_of(analysis, one, store) for one in subjects}
        found = []
        for done, every in enumerate(layers.values(), start=1):
            found.append(_of_layers(analysis, {one: sources[one[0]] for one in every}, store))
            if progress is not None:
                progress(done, len(layers))
        return _Bounds(np.array(found))

    groups = subjects_of(analysis)
    bounds = {
        group: STAGE.get(store, _key(analysis, layers), lambda layers=layers: make(layers)).bounds  # type: ignore[misc]
        for group, layers in groups.items()
    }
    return _table(groups, bounds)


def kept_noise_ceilings(analysis: Analysis, store: Store) -> pd.DataFrame:
    """`noise_ceilings` of the groups for which they are in the store; computes nothing."""
    groups, bounds = subjects_of(analysis), dict[str, FloatArray]()
    for group, layers in groups.items():
        kept = STAGE.find(store, _key(analysis, layers))
        bounds |= {} if kept is None else {group: kept.bounds}
    return _table(groups, bounds)


def _table(
    groups: dict[str, dict[int, tuple[Layer, ...]]], bounds: dict[str, FloatArray]
) -> pd.DataFrame:
    rows = [
        (group, number, lower, upper, len(every))
        for group, both in bounds.items()
        for (number, every), (lower, upper) in zip(groups[group].items(), both, strict=True)
    ]
    return pd.DataFrame(rows, columns=["group", "layer", "lower", "upper", "n"])


def _of_layers(
    analysis: Analysis, layers: dict[Layer, Representations], store: Store
) -> NoiseCeiling:
    n, n_pairs = len(layers), analysis.design.n_pairs
    what = f"the noise ceiling of {n} subjects and {n_pairs:,} pairs of stimuli"
    of_ranks = 4 * (2 * n + 1) * n_pairs
    disk = of_ranks * (of_ranks > IN_MEMORY_BYTES)
    check_memory(_A_PAIR_BYTES * n_pairs + of_ranks - disk, what, "choose fewer pairs (--pairs)")
    check_disk(store.root, disk, what, "choose fewer pairs (--pairs)")

    def ranks(layer: Layer) -> NDArray[np.uint32]:
        model, number = layer
        squared = squared_distances(
            np.asarray(layers[layer][number]),
            analysis.spec.distance_of(model),
            design=analysis.design,
            layer=layer_name(layer),
            threads=cores(),
        )
        return pair_ranks(squared, overwrite=True, threads=cores())

    return noise_ceiling(map(ranks, layers), n, PairRanks(2 * n + 1, n_pairs, store.root))


def model_ceilings(analysis: Analysis, results: Results, ceilings: pd.DataFrame) -> pd.DataFrame:
    """Share of the noise ceilings that each layer of other systems reaches, and the features.

    The RSA is the mean over the subjects of a group. In the rows of `FEATURES` it is the mean of
    the held-out ρ: what the features, weighted for each subject, predict of its distances.

    Parameters
    ----------
    results : of all layers of the analysis
    ceilings : as of `noise_ceilings`

    Returns
    -------
    model, layer (missing for the features), group, group_layer, rsa, share_of_lower, share_of_upper;
    a share of a ceiling that is not above 0 is missing
    """
    rho = results.scores.groupby(["model", "layer"])["rho"].mean()
    place = {layer: at for at, layer in enumerate(analysis.layers)}
    groups, rows = subjects_of(analysis), []
    for group, number, lower, upper, _ in ceilings.itertuples(index=False):
        subjects = groups[group][number]
        members = {model for every in groups[group].values() for model, _ in every}
        reached = [(FEATURES, None, float(rho.loc[list(subjects)].mean()))]
        to_all = analysis.rsa[:, [place[one] for one in subjects]].mean(axis=1)
        reached += [
            (*layer, to_all[at]) for layer, at in place.items() if layer[0] not in members
        ]
        shares = [end if end > 0 else np.nan for end in (lower, upper)]
        rows += [
            (model, layer, group, number, value, *(value / end for end in shares))
            for model, layer, value in reached
        ]
    columns = ["model", "layer", "group", "group_layer", "rsa", "share_of_lower", "share_of_upper"]
    return pd.DataFrame(rows, columns=columns).astype({"layer": "Int64"})


def ceiling_tables(
    analysis: Analysis, results: Results, store: Store, progress: Counted | None = None
) -> dict[str, pd.DataFrame]:
    """Tables of the noise ceilings, by their file names; none without a group of subjects.

    Parameters and errors are those of `noise_ceilings` and `model_ceilings`.
    """
    ceilings = noise_ceilings(analysis, store, progress)
    if ceilings.empty:
        return {}
    reached = model_ceilings(analysis, results, ceilings)
    return {"noise_ceilings.csv": ceilings, "model_ceilings.csv": reached}
