"""An audit of every layer, so that an artefact is not taken for a finding.

What a layer's distances are made of (position 0, outlier units, one common direction), and what
becomes of its profile, its score and its RSA with other layers in variants of the analysis. The
variants are runs on stored representations; only the control with random weights runs a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.run import run
from mlem_core.base.errors import InputError
from mlem_core.base.typing import Progress, Report
from mlem_core.pairs.distances import PRECOMPUTED
from mlem_core.robustness.audit_tables import Audit
from mlem_core.robustness.comparison import CHANGES, PAIRS, LayerResults, compare
from mlem_core.robustness.flags import notes
from mlem_core.robustness.layer_measures import layer_table
from mlem_core.robustness.variants import CONTROL, VARIANTS
from mlem_core.storage.stage import Stage
from mlem_core.storage.store import Store

STAGE = Stage("audit", 2, Audit.save, Audit.load)


def find(analysis: Analysis, store: Store) -> Audit | None:
    """The audit of an analysis if it is in the store or came with it; computes nothing."""
    return STAGE.find(store, depends_on(analysis))


def audit(analysis: Analysis, store: Store, progress: Report | None = None) -> Audit:
    """Audit every layer of an analysis; kept in the store, as are all its variants.

    Parameters
    ----------
    analysis : finished; its representations are in the store
    progress : called as the work goes on; what it raises stops the work

    Raises
    ------
    InputError
        The representations are no longer in the store.
    """
    return STAGE.get(
        store,
        depends_on(analysis),
        lambda: _audit(analysis, store, progress or (lambda _: None)),
    )


def depends_on(analysis: Analysis) -> dict[str, Any]:
    """What the key of the audit of an analysis is made of."""
    spec, models = analysis.spec, analysis.manifest["models"]
    return {
        "stimuli": analysis.stimuli.digest,
        "layers": [[models[model]["identity"], model, layer] for model, layer in analysis.layers],
        "missing": spec.missing,
        "distance": spec.distance,
        "estimator": spec.estimator,
        "interactions": spec.interactions,
        **spec.pair_choices,
    }


def _audit(analysis: Analysis, store: Store, report: Report) -> Audit:
    notices: list[str] = []
    variants: dict[str, Analysis] = {}
    models = {model for model, _ in analysis.layers}
    given = all(analysis.spec.distance_of(model) == PRECOMPUTED for model in models)
    for variant in VARIANTS:
        changed = variant.change(analysis)
        if changed == analysis.spec or not (changed.models or changed.representations):
            continue
        if given and variant.name != "without-first":
            continue

        def of_variant(progress: Progress, says: str = variant.says) -> None:
            report(replace(progress, stage=f"{progress.stage} {says}"))

        try:
            variants[variant.name] = run(changed, store, of_variant)
        except InputError as error:
            notices.append(f"Nothing is said about the layers {variant.says}: {error}")
    return Audit(*_tables(analysis, variants, store, report), notices=tuple(notices))


def _tables(
    analysis: Analysis, variants: Mapping[str, Analysis], store: Store, report: Report
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The tables layers, changes and pairs of an `Audit`."""
    layers, same = layer_table(analysis, variants, store, report)
    before = LayerResults.of(analysis)
    changes, pairs = [], []
    for name, variant in variants.items():
        after = LayerResults.of(variant)
        changed, paired = compare(before, after.under_trained_names() if name == CONTROL else after)
        changes.append(changed.assign(variant=name, same=same[name]))
        pairs.append(paired.assign(variant=name))
    layers["rho"], layers["top"] = before.rho, [before.top(i) for i in range(len(layers))]
    all_changes, all_pairs = _joined(changes, CHANGES), _joined(pairs, PAIRS)
    layers["note"] = notes(layers, all_changes)
    return layers, all_changes, all_pairs


def _joined(tables: list[pd.DataFrame], columns: tuple[str, ...]) -> pd.DataFrame:
    if not tables:
        return pd.DataFrame(columns=list(columns))
    return pd.concat(tables, ignore_index=True)[list(columns)]
