"""Subjects of an analysis: files that are members of a group."""

from __future__ import annotations

from mlem_core.analysis.analysis import Analysis
from mlem_core.base.typing import Layer


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
