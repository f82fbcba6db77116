"""What the first paper found, beside what an analysis of the same models finds."""

from __future__ import annotations

import math
from typing import NamedTuple

import pandas as pd

from mlem_core.analysis.results import Results
from mlem_core.base.typing import Layer, layer_name

_BERT, _GPT2, _MAMBA = "bert-base-uncased", "gpt2", "state-spaces/mamba-130m-hf"
MODELS = (_BERT, _GPT2, _MAMBA)


class _Published(NamedTuple):
    """A number of the paper: of which two layers (None: of all), and the number."""

    pair: tuple[Layer, Layer] | None
    value: float


# Salle et al. 2024: figure 2, and figure 4 (the highest and the lowest of the matrix).
PUBLISHED = (
    _Published(None, 0.69),
    _Published(((_GPT2, 8), (_BERT, 4)), 0.77),
    _Published(((_MAMBA, 8), (_BERT, 4)), -0.24),
)


def beside_published(results: Results) -> pd.DataFrame | None:
    """The published numbers and ours: quantity, layer_a, layer_b, published, here.

    Parameters
    ----------
    results : of an analysis

    Returns
    -------
    None where its models are not the three of the paper. The agreement has no layers; a pair of
    layers that is not in the analysis, and an agreement that is not defined, has no number here.

    Source: Salle et al. 2024.
    """
    if {model for model, _ in results.layers} != set(MODELS):
        return None
    square, rows = results.similarity_profiles, []
    for pair, value in PUBLISHED:
        if pair is None:
            rows.append(("agreement", "", "", value, results.agreement))
            continue
        a, b = map(layer_name, pair)
        there = a in square.index and b in square.index
        rows.append(("weighted_tau", a, b, value, float(square.loc[a, b]) if there else math.nan))
    return pd.DataFrame(rows, columns=["quantity", "layer_a", "layer_b", "published", "here"])
