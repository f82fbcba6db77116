"""Stimuli as the program keeps them: a CSV, and distances of the features that these give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from mlem_core.base.errors import InputError, readable
from mlem_core.stimuli.columns import GIVEN, texts
from mlem_core.stimuli.neural_rows import symmetric_distances
from mlem_core.stimuli.stimulus_csv import read_written, write_csv
from mlem_core.stimuli.stimulus_set import Rdm, StimulusSet

STIMULI = "stimuli.csv"
# Beside it, where features are given by their distances.
RDMS = "rdms.npz"


def save_stimuli(stimuli: StimulusSet, folder: Path) -> None:
    """Write stimuli into an existing folder: CSV, and distances as .npz without pickles."""
    from scipy.spatial.distance import squareform

    write_csv(stimuli, folder / STIMULI)
    arrays = {}
    for number, (name, rdm) in enumerate(sorted(stimuli.rdms.items())):
        arrays[f"name_{number}"] = np.array(name)
        arrays[f"values_{number}"] = np.array(rdm.values)
        arrays[f"distances_{number}"] = squareform(rdm.distances, checks=False)
    if arrays:
        np.savez_compressed(folder / RDMS, **arrays)  # type: ignore[arg-type, unused-ignore]


def read_saved(path: Path, kinds: Mapping[str, str], name: str) -> StimulusSet:
    """Stimuli that `save_stimuli` has written.

    Parameters
    ----------
    path : of the CSV, beside which the distances are
    kinds : of the features; others are what their values suggest
    name : how the set is called

    Raises as `read_written`; a file of distances that is none, or not of these stimuli.
    """
    by_distances = {feature: kind for feature, kind in kinds.items() if kind in GIVEN}
    ordered = [feature for feature, kind in kinds.items() if kind == "ordered"]
    nominal = [feature for feature in kinds if feature not in ordered]
    stimuli = read_written(path, name=name, ordered=ordered, nominal=nominal)
    if not by_distances:
        return stimuli
    rdms = _read_rdms(path.with_name(RDMS))
    for feature in by_distances:
        cells = set(texts(stimuli.table[feature])) - {None}
        if feature not in rdms or not cells <= set(rdms[feature].values):
            raise InputError(
                f"there are no distances for the feature {feature!r}; expected them in "
                f"{RDMS} beside {path.name}."
            )
    features = tuple(
        replace(feature, kind=by_distances.get(feature.name, feature.kind))
        for feature in stimuli.features
    )
    return replace(stimuli, features=features, rdms={name: rdms[name] for name in by_distances})


def _read_rdms(path: Path) -> dict[str, Rdm]:
    from scipy.spatial.distance import squareform

    rdms: dict[str, Rdm] = {}
    if not path.exists():
        return rdms
    with (
        readable(path.name, "file of distances", Exception),
        np.load(path, allow_pickle=False) as arrays,
    ):
        for number in range(len(arrays.files) // 3):
            values = tuple(map(str, arrays[f"values_{number}"].tolist()))
            square = squareform(arrays[f"distances_{number}"])
            if len(square) != len(values):
                raise ValueError("distances of other values")
            square = symmetric_distances(square, path.name, values)
            rdms[str(arrays[f"name_{number}"])] = Rdm(values, square)
    return rdms
