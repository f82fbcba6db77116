"""Tables of a capsule that follow from its pair tables, as it is written and as it is verified."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.results import Results
from mlem_core.analysis.selection import Selection
from mlem_core.base.typing import Layer
from mlem_core.data.csvfile import write_table
from mlem_core.inference.explanation import explain
from mlem_core.measures.decomposition import decompose

FORMAT = 1
# Those of `why_alike`.
WHY = ("why.csv", "why_layers.csv")


def selection_as_shown(analysis: Analysis, shown: dict[str, Any]) -> Selection:
    """What a capsule's entry `shown` stands for."""
    whole = analysis.select().to_dict()
    chosen = {name: whole[name] if value is None else value for name, value in shown.items()}
    return Selection.from_dict(chosen).checked(analysis.tables.features, analysis.layers)


def tables_as_csv(results: Results) -> dict[str, bytes]:
    """The content of each file under `tables/`."""
    correlations = results.feature_correlations.rename_axis("feature").reset_index()
    named = {**results.tables(), "feature_correlations.csv": correlations}
    return {name: as_csv_file(table) for name, table in named.items()}


def as_csv_file(table: pd.DataFrame) -> bytes:
    """A table as CSV; cells that a spreadsheet would run are escaped."""
    file = BytesIO()
    write_table(table, file)
    return file.getvalue()


def why_alike(
    analysis: Analysis, selection: Selection, pair: tuple[Layer, Layer]
) -> dict[str, pd.DataFrame]:
    """The RSA of two layers as a sum over the features, and that of every two layers.

    Returns
    -------
    why.csv (term, value) and why_layers.csv (of `Decomposition.table`); none with a single layer
    """
    if len(selection.layers) < 2:
        return {}
    at = selection.places(analysis.layers)
    own = analysis.tables.of_layers(at).of_features(selection.features)
    split = decompose(own, analysis.rsa[at][:, at])
    why = explain(analysis, *pair, features=selection.features)
    return dict(zip(WHY, (why.terms, split.table(list(selection.layers))), strict=True))
