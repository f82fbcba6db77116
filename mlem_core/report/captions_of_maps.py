"""Captions of maps of the stimuli with more in them than a colour."""

from __future__ import annotations

from collections.abc import Sequence

from mlem_core.base.text import listed


def map_panels(color: str, n_layers: int, n_all: int, basis: str) -> str:
    """The stimuli in the layers of a model; `basis` is the caption of one map, without colours."""
    some = f" {n_layers} of the {n_all} layers are drawn." if n_layers < n_all else ""
    return f"The stimuli in the layers of one model, coloured by {color}.{some} {basis}"


def nested_map(features: Sequence[str], basis: str) -> str:
    """Groups of stimuli inside groups.

    Parameters
    ----------
    features : what they are called, in the order in which they divide
    basis : caption of the map, without colours
    """
    return (
        f"The stimuli divided by {listed(features)}, in this order: colours and outlines (the half "
        "of a group that is nearest to its middle) are the first feature, marks the second; lines "
        "join the centre of a group to those of the groups inside it. Between groups: the share of "
        "the squared distances in the map that lies between the groups by the features so far, "
        f"less what random groups have (ε²). {basis}"
    )
