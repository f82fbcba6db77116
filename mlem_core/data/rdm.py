"""A feature that is given by the distances between its values: a dissimilarity matrix (RDM)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray

# The table of every two values is 200 MB, and what is computed of it a few times that.
MOST_VALUES = 5_000
# By what share of the largest distance a matrix may be off from a symmetric one with a diagonal
# of 0, as one that was written with fewer digits is.
TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Rdm:
    """Distances between the values of a feature.

    values : (n_values,) what the cells of its column say, each once
    distances : (n_values, n_values) symmetric, at least 0, and 0 on the diagonal
    """

    values: tuple[str, ...]
    distances: FloatArray

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the values and their distances."""
        digest = hashlib.sha256(json.dumps(self.values).encode())
        digest.update(np.ascontiguousarray(self.distances, dtype="<f8").tobytes())
        return digest.hexdigest()

    @cached_property
    def places(self) -> dict[str, int]:
        """The row of each value."""
        return {value: row for row, value in enumerate(self.values)}

    def among(self, values: Sequence[str]) -> FloatArray:
        """(n, n) the distances of some values, in their order."""
        rows = [self.places[value] for value in values]
        return self.distances[np.ix_(rows, rows)]


def checked_distances(distances: FloatArray, what: str, names: Sequence[str]) -> FloatArray:
    """The distances (n, n), symmetric to the last digit and with a diagonal of 0.

    Parameters
    ----------
    what : how messages call them
    names : (n,) how messages call each row

    Raises
    ------
    InputError
        Not square, not finite, negative, not symmetric, not 0 on the diagonal, or 0 everywhere.
    """
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1]:
        shape = " × ".join(map(str, distances.shape))
        raise InputError(
            f"{what} is of shape {shape}; expected a square matrix of distances, as many rows as "
            "columns, or the distances of every two stimuli once (condensed)."
        )

    def where(wrong: np.ndarray) -> tuple[str, float]:
        row, column = map(int, np.unravel_index(int(np.argmax(wrong)), wrong.shape))
        return f"row {names[row]}, column {names[column]}", float(distances[row, column])

    if not np.isfinite(distances).all():
        place, value = where(~np.isfinite(distances))
        raise InputError(f"{what} has {value} in {place}; expected a distance there.")
    if (distances < 0).any():
        place, value = where(distances < 0)
        raise InputError(f"{what} has {value:g} in {place}; a distance is at least 0.")
    largest = float(distances.max(initial=0.0))
    if not 0 < largest <= 1e300:
        raise InputError(
            f"the largest distance of {what} is {largest:g}; expected one above 0 and up to 1e300."
        )
    diagonal = np.diag(np.diag(distances))
    if (diagonal > TOLERANCE * largest).any():
        place, value = where(diagonal > TOLERANCE * largest)
        raise InputError(
            f"{what} has {value:g} in {place}, on its diagonal; a distance of a stimulus from "
            "itself is 0 (of similarities, give 1 minus them)."
        )
    # Halves first: the sum of two large numbers may be too large.
    both = distances / 2 + distances.T / 2
    apart = np.abs(distances - both)
    if (apart > TOLERANCE * largest).any():
        place, value = where(apart > TOLERANCE * largest)
        row, column = np.unravel_index(int(np.argmax(apart > TOLERANCE * largest)), apart.shape)
        raise InputError(
            f"{what} is not symmetric: {value:g} in {place}, {float(distances[column, row]):g} the "
            "other way round; expected one distance for every two stimuli."
        )
    np.fill_diagonal(both, 0.0)
    return both
