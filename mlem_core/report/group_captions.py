"""Captions of the figures and tables of groups of models, and of trajectories over training.

`over` is what intervals are over; `basis` says last how many models there are, and on how much all
was computed.
"""

from __future__ import annotations


def group_profiles(over: str, basis: str) -> str:
    """Caption of the mean profiles of groups of models."""
    return (
        "Mean importance of each feature over relative depth, for each group of models; bands are "
        f"95 % intervals over {over}, where a group has n of two or more. Groups of one speak of "
        f"no other model. {basis}"
    )


def universality(over: str, basis: str) -> str:
    """Caption of the universality of terms."""
    return (
        "Universality: the mean of a term of the RSA correlation over pairs of models of different "
        "groups, divided by that over pairs of different models of one group (layers of the same "
        f"relative depth). 95 % intervals over {over}; terms that models of a group do not share "
        f"for sure are left out. {basis}"
    )


def group_similarity(over: str, basis: str) -> str:
    """Caption of the similarity within and between groups."""
    return (
        "Mean RSA correlation of pairs of different models, of layers of the same relative depth: "
        "on the diagonal of models of one group, else of two groups. 95 % intervals over "
        f"{over}; they need three models of a group. {basis}"
    )


def trajectories(over: str, basis: str, where: str) -> str:
    """Caption of what changes over training; `where` says of which layer."""
    return (
        "Importance of each feature, and held-out ρ (dashed), over the steps of training, for each "
        f"trajectory; {where}. The axis is logarithmic; step 0, left of the dotted line, is off "
        "its scale. Means over the seeds of a step; bands, where there are two or more: 95 % "
        f"intervals over {over}, step by step. {basis}"
    )
