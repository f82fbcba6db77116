"""Tables of results as the pages show them, and as LaTeX."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from mlem_core.base.text import minus
from mlem_core.base.typing import parse_layer

if TYPE_CHECKING:
    from mlem_core.analysis.results import Results


def pairs_of_layers(results: Results) -> pd.DataFrame:
    """Both similarities of every two layers, a row a pair of layers."""
    both = {
        "weighted_tau": results.similarity_profiles.stack(),
        "rsa": results.similarity_rsa.stack(),
    }
    return pd.DataFrame(both).rename_axis(["layer_a", "layer_b"]).reset_index()


def importance_of(results: Results, a: str, b: str) -> pd.DataFrame:
    """Mean importance of each feature in two layers "model:layer"; the largest in `a` first."""
    means = results.importance.groupby(["model", "layer", "feature"], sort=False)["importance"]
    table = means.mean()
    columns = {name: table.loc[parse_layer(name)] for name in dict.fromkeys((a, b))}
    return pd.DataFrame(columns).sort_values(a, ascending=False).reset_index()


def profile_table(results: Results) -> pd.DataFrame:
    """A row a layer: held-out ρ and the importance of each feature, as "mean (sd)" over folds."""

    def mean_sd(values: pd.Series[float]) -> str:
        return minus(f"{values.mean():.3f} ({values.std():.3f})")

    by = ["model", "layer"]
    scores = results.scores.groupby(by, sort=False)["rho"].agg(mean_sd).rename("ρ")
    features = list(dict.fromkeys(results.importance["feature"]))
    cells = results.importance.groupby([*by, "feature"], sort=False)["importance"].agg(mean_sd)
    table = pd.concat([scores, cells.unstack()[features]], axis=1)
    return table.reset_index()
