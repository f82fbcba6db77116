"""Everything that is needed to run an analysis again."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.parallel import cores
from mlem_core.base.typing import Layer
from mlem_core.data.stimuli import StimulusSet
from mlem_core.estimators.ridge_solver import ALPHAS, BETAS
from mlem_core.models.representations import Representations
from mlem_core.scale.executor import executor

PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "torch", "transformers")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def source_identity(model: Mapping[str, Any]) -> str:
    """The identity of the stored representations of a model that an analysis has a view of.

    Parameters
    ----------
    model : of the manifest's `models`
    """
    return str(model.get("source_identity") or model["identity"])


def same_content(model: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a model of a manifest has the weights, or the file, of another, or of facts.

    Of a manifest that names none nobody knows.
    """
    return all(other.get(of) == model[of] for of in ("weights", "sha256") if of in model)


def manifest_of(
    spec: AnalysisSpec,
    whole: StimulusSet,
    stimuli: StimulusSet,
    sources: Mapping[str, Representations],
    layers: Sequence[Layer],
    notices: Sequence[str],
) -> dict[str, Any]:
    """What `manifest.json` says of an analysis.

    Parameters
    ----------
    spec : with the names of the features that are resolved by value
    whole, stimuli : all of them, and those that the analysis keeps
    sources : representations by the name of their model
    layers : that have results
    """
    models = {}
    for name, source in sources.items():
        used = [n for model, n in layers if model == name]
        if used:
            models[name] = {"identity": source.identity, "layers": used, **source.facts}
    return {
        "format": 1,
        "parameters": replace(spec, features=tuple(f.name for f in stimuli.features)).to_dict(),
        "alphas": list(BETAS if spec.values else ALPHAS),
        "stimuli": {
            "name": stimuli.name,
            "digest": whole.digest,
            "level": stimuli.level,
            "n_stimuli": len(stimuli),
            "n_sentences": len(np.unique(stimuli.groups)),
            "features": {feature.name: feature.kind for feature in stimuli.features},
        },
        "models": models,
        "notices": list(notices),
        "versions": {
            "mlem": _version("mlem-core"),
            "python": platform.python_version(),
            **{package: _version(package) for package in PACKAGES},
        },
        "machine": {
            "platform": platform.platform(),
            "cores": cores(),
            **({} if executor().is_here else {"cluster": executor().where}),
        },
    }
