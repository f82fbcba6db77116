"""Options for features that are given by distances."""

from __future__ import annotations

import os
from dataclasses import dataclass

from mlem_core.base.parameters import option, parse_names


@dataclass(frozen=True, kw_only=True)
class DistanceFeatureOptions:
    """Features that are vectors of several columns, or RDMs of files."""

    vectors: tuple[tuple[str, tuple[str, ...]], ...] = option(
        (),
        "Vectors",
        "Ordered features that are one vector, whose distance is Euclidean: their names, or a * "
        "for all that begin so, such as semantics=s*.",
        metavar="NAME=COLUMN,COLUMN",
        pair=parse_names,
        option="vector",
    )
    rdms: tuple[tuple[str, str], ...] = option(
        (),
        "Features given as RDMs",
        "A feature and the .npy or .csv file of its distances: a square matrix in the order of the "
        "stimuli, condensed, or with names in its first row and column.",
        metavar="NAME=FILE",
        pair=os.path.expanduser,
        option="rdm",
    )
