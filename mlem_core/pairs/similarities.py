"""Similarities of two layers: an entry each, in one registry. RSA comes with every analysis.

Most are the correlation, over all pairs of stimuli, of a number that each layer gives a pair, such
as the rank of its distance (RSA). Moments of that number take the place of moments of ranks
(`mlem_core.pairs.similarity_moments`), so that whatever divides RSA over the features
(`mlem_core.measures.decomposition`) divides the others as well. The numbers of a layer add up to 0
over all pairs, however the stimuli of the other layer are ordered: layers that have nothing to do
with each other have a similarity of 0 on average.

Others compare the components of two layers (`Similarity.aligned`). No pair of stimuli has a part
in them, so there are no terms by feature.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.parallel import cores
from mlem_core.base.parameters import Registry
from mlem_core.base.text import listed
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.extending import entry_modules
from mlem_core.pairs.ranks import pair_ranks

# What is below this part of what it is the difference of is rounding.
NOTHING = 1e-12
# Gives the similarity of the components (n_stimuli, n_a) and (n_stimuli, n_b) of two layers,
# by the fold (n_stimuli,) that leaves each stimulus out.
Aligned = Callable[[FloatArray, FloatArray, IntArray], float]


class PairValues(NamedTuple):
    """Values that a layer gives the pairs of some stimuli.

    values : (n_sides, n_pairs) in condensed order; two sides where (i, j) and (j, i) differ
    mean : of all values
    """

    values: NDArray[Any]
    mean: float = 0.0


@dataclass(frozen=True)
class Similarity:
    """A similarity of two layers, and what can be had of it.

    Attributes
    ----------
    name : how a user asks for it
    values : what a layer gives the pairs, from its squared distances (n_pairs,); None where it is
        no sum over pairs
    fewest : stimuli that it needs
    short : how figures and short sentences call it
    label : how forms call it
    called : the same in a sentence, after "the"
    title, unit : what matrices of it are called, and what their numbers are
    statistic : what its numbers of a pair are, in a sentence
    distance : the neural distance that it is of; None is that of the analysis
    sparse : whether most values of pairs are 0
    aligned : the similarity of the components of two layers, where it is no sum over pairs
    components : then, those (n_stimuli, n_components) of a layer (n_stimuli, n_units)
    settings : numbers on which its values depend, by their names, for its keys in the store
    of_ranks : whether it is of the ranks that the moments of pairs have. It comes with every
        analysis, also of some of the pairs; any other is computed from all pairs (or the
        representations) once it is needed
    """

    name: str
    values: Callable[[FloatArray], PairValues] | None
    fewest: int
    short: str
    label: str
    called: str
    title: str
    unit: str
    statistic: str
    distance: str | None = None
    sparse: bool = False
    aligned: Aligned | None = None
    components: Callable[[NDArray[np.floating]], FloatArray] | None = None
    settings: tuple[tuple[str, int], ...] = ()
    of_ranks: bool = False

    @property
    def divides(self) -> bool:
        """Whether it is a sum over pairs of stimuli, which features can divide."""
        return self.values is not None

    @property
    def depends_on_distance(self) -> bool:
        """Whether the neural distance that is chosen for an analysis has a part in it."""
        return self.divides and self.distance is None

    @property
    def several(self) -> str:
        """Several of them, in the family of their tests."""
        return f"{self.called}s" if self.of_ranks else f"values of the {self.called}"

    @property
    def meaning(self) -> str:
        """Definition of the similarity, in a sentence."""
        over = "the correlation, over all pairs, of " if self.divides else ""
        return f"{over}{self.statistic}"

    @property
    def no_terms(self) -> str:
        """Reason why there are no contributions by feature; empty where there are."""
        if self.divides:
            return ""
        return f"{self.short} is no sum over pairs and has no contributions by feature."

    def check_divides(self) -> None:
        """Raise InputError where it has no terms by feature."""
        if not self.divides:
            names = [name for name, one in SIMILARITIES.items() if one.divides]
            raise InputError(
                f"found the similarity {self.name}, which is no sum over pairs of stimuli and has "
                f"no terms by feature; choose {listed(names, last='or')}."
            )

    def check_enough(self, n: int) -> None:
        """Raise InputError for too few stimuli."""
        if n < self.fewest:
            raise InputError(f"found {n} stimuli; the {self.called} needs at least {self.fewest}.")

    def pair_values(self, squared: FloatArray) -> PairValues:
        """Values that a layer gives the pairs of stimuli.

        `squared` is (n_pairs,) squared distances of all pairs, in condensed order.

        Raises InputError: too few stimuli; a similarity that is no sum over pairs.
        """
        self.check_divides()
        assert self.values is not None
        self.check_enough(n_stimuli(len(squared)))
        return self.values(squared)


def n_stimuli(n_pairs: int) -> int:
    """Number of stimuli that have so many pairs."""
    return (1 + math.isqrt(1 + 8 * n_pairs)) // 2


def _ranks(squared: FloatArray) -> PairValues:
    doubled = pair_ranks(squared, threads=cores())
    return PairValues((doubled / 2 - (len(doubled) + 1) / 2)[None])


SIMILARITIES = Registry[Similarity]("similarity", entry_modules)
# The one that comes with every analysis, and is looked at where nothing else is asked.
RSA = "rsa"

SIMILARITIES.register(
    Similarity(
        RSA,  # Salle et al. 2024, section 4
        _ranks,
        2,
        short="RSA",
        label="RSA: ranks of the distances",
        called="RSA correlation",
        title="by neural distances",
        unit="RSA, ρ",
        statistic="the rank of the distance",
        of_ranks=True,
    )
)
