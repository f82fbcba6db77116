"""Captions of the figures and tables of groups of models."""

from __future__ import annotations


def group_profiles(basis: str) -> str:
    """Caption of the mean profiles of groups of models."""
    return (
        "Mean importance of each feature over relative depth, for each group of models; bands are "
        "95 % intervals over its members, of which there are n. A group of one has none. "
        f"{basis}"
    )


def universality(over: str, basis: str) -> str:
    """Caption of the universality of terms; `over` is what intervals are over."""
    return (
        "Universality: the mean of a term of the RSA correlation over pairs of models of different "
        "groups, divided by that over pairs of different members of one group (layers of the same "
        f"relative depth). 95 % intervals over {over}; terms that members of a group do not share "
        f"for sure are left out. {basis}"
    )


def trajectories(over: str, basis: str, where: str) -> str:
    """Caption of what changes over training; `where` says of which layer."""
    return (
        "Importance of each feature, and held-out ρ (dashed), over the steps of training, for each "
        f"trajectory; {where}. The axis is logarithmic, step 0 left of the dotted line is off its "
        f"scale. Means over the seeds of a step, bands where there are two: 95 % intervals over "
        f"{over}, step by step; those of one run have none. {basis}"
    )


def group_similarity(over: str) -> str:
    """Caption of the similarity within and between groups."""
    return (
        "Mean RSA correlation of pairs of different models, of layers of the same relative depth; "
        f"a group beside itself is that of its members. 95 % intervals over {over}."
    )
