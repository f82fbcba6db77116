"""An analysis as plain files without pickle, as `manifest.json`, and as one types it."""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.analysis import pair_errors
from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.spec import AnalysisSpec, chosen, parameters, unread_options
from mlem_core.base import VERSION
from mlem_core.base.errors import InputError
from mlem_core.base.files import parsed
from mlem_core.base.parallel import cores
from mlem_core.base.parameters import join_names, option_text
from mlem_core.base.resources import installed_version
from mlem_core.base.text import short
from mlem_core.base.typing import FloatArray, Layer, layer_name
from mlem_core.estimators.registry import FoldFits
from mlem_core.estimators.ridge_solver import ALPHAS, BETAS
from mlem_core.measures.importance import Fits
from mlem_core.measures.similarity import most_alike
from mlem_core.pairs.statistics_file import load_statistics, save_statistics
from mlem_core.representations.layers import Representations
from mlem_core.stimuli.saved_stimuli import STIMULI, read_saved, save_stimuli
from mlem_core.stimuli.stimulus_set import StimulusSet

PAIR_ERRORS = "pair_errors.csv"
VARIANCE = "variance.csv"
# Of an estimator that is fitted to single pairs.
FITS = "fits.npz"
# Of an analysis some of whose folds choose another coding than most.
OTHERWISE_CODED = "otherwise_coded.npz"


def save_analysis(analysis: Analysis, folder: Path | str) -> None:
    """Write the analysis into an existing folder: plain CSV, JSON and .npy, no pickle."""
    target = Path(folder)
    save_stimuli(analysis.whole, target)
    save_statistics(analysis.pairs, target / "pairs.npz")
    if analysis.otherwise_coded is not None:
        save_statistics(analysis.otherwise_coded, target / OTHERWISE_CODED)
    if analysis.fits is not None:
        fits, importance = analysis.fits
        np.savez(target / FITS, importance=importance, **vars(fits))
    np.save(target / "rsa.npy", analysis.rsa)
    np.save(target / "folds.npy", analysis.folds)
    if not analysis.pair_errors.empty:
        analysis.pair_errors.to_csv(target / PAIR_ERRORS, index=False)
    if analysis.variance is not None:
        analysis.variance.to_csv(target / VARIANCE, index=False)
    about = {
        "spec": analysis.spec.to_dict(),
        "stimuli": analysis.stimuli.name,
        "kinds": {feature.name: feature.kind for feature in analysis.stimuli.features},
        "layers": analysis.layers,
        "notices": analysis.notices,
        "manifest": analysis.manifest,
    }
    (target / "analysis.json").write_text(json.dumps(about), encoding="utf-8")


@dataclass(frozen=True)
class Contents:
    """Contents of a saved analysis, for a list of many.

    Attributes
    ----------
    similarity : the largest RSA of two layers that `Analysis.most_alike` chooses from, NaN where
        there is one layer
    rsa : (n_layers, n_layers)
    """

    models: tuple[str, ...]
    features: tuple[str, ...]
    notices: tuple[str, ...]
    n_stimuli: int
    similarity: float
    rsa: FloatArray


def read_contents(folder: Path | str) -> Contents:
    """Contents of the folder that `save_analysis` wrote; only its small arrays are read.

    Raises OSError, InputError: it is not there, or of another version.
    """
    about = _folder_identity(Path(folder))
    spec, layers = AnalysisSpec.from_dict(about.spec), about.layers
    rsa, folds = (_array(Path(folder) / f"{name}.npy") for name in ("rsa", "folds"))
    files = [name for name, _ in spec.representations]
    a, b = map(layers.index, most_alike(rsa, layers, files, spec.group_of))
    return Contents(
        models=tuple(dict.fromkeys(model for model, _ in layers)),
        features=tuple(about.kinds),
        notices=tuple(about.notices),
        n_stimuli=len(folds),
        similarity=float(rsa[a, b]) if a != b else np.nan,
        rsa=rsa,
    )


def read_spec(folder: Path | str) -> AnalysisSpec:
    """The specification of a saved analysis; raises as `read_contents`."""
    return AnalysisSpec.from_dict(_folder_identity(Path(folder)).spec)


@dataclass(frozen=True)
class _About:
    """Contents of `analysis.json`."""

    spec: dict[str, Any]
    stimuli: str
    kinds: dict[str, str]
    layers: list[Layer]
    notices: list[str]
    manifest: dict[str, Any]


def _folder_identity(folder: Path) -> _About:
    about = parsed(_About, (folder / "analysis.json").read_bytes(), "the kept analysis.json")
    return replace(about, notices=[*about.notices, *unread_options(about.spec)])


def _array(file: Path) -> Any:
    try:
        return np.load(file, allow_pickle=False)
    except (EOFError, SyntaxError, TokenError) as error:
        # NumPy takes a header that it cannot read for Python, and breaks it into tokens.
        raise OSError(f"{file} is no array: {error}") from error


def load_analysis(folder: Path | str) -> Analysis:
    """Read what `save_analysis` wrote."""
    source = Path(folder)
    about = _folder_identity(source)
    spec, kinds = AnalysisSpec.from_dict(about.spec), about.kinds
    whole = read_saved(source / STIMULI, kinds, about.stimuli)
    whole = whole.select(list(kinds))
    errors, variance, otherwise_coded, fits = pair_errors.none(), None, None, None
    if (source / PAIR_ERRORS).exists():
        columns: Any = pair_errors.COLUMNS
        errors = pd.read_csv(source / PAIR_ERRORS, dtype=columns, keep_default_na=False)
    if (source / VARIANCE).exists():
        # A model may be called NA.
        variance = pd.read_csv(source / VARIANCE, converters={"model": str})
    if (source / OTHERWISE_CODED).exists():
        otherwise_coded = load_statistics(source / OTHERWISE_CODED)
    if (source / FITS).exists():
        with np.load(source / FITS, allow_pickle=False) as arrays:
            parts = {part.name: arrays[part.name] for part in fields(FoldFits)}
            fits = Fits(FoldFits(**parts), arrays["importance"])
    return Analysis(
        spec=spec,
        stimuli=spec.kept.apply(whole),
        layers=about.layers,
        pairs=load_statistics(source / "pairs.npz"),
        folds=_array(source / "folds.npy"),
        notices=about.notices,
        manifest=about.manifest,
        whole=whole,
        pair_errors=errors,
        fits=fits,
        otherwise_coded=otherwise_coded,
        variance=variance,
    )


PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "torch", "transformers")


def build_manifest(
    spec: AnalysisSpec,
    whole: StimulusSet,
    stimuli: StimulusSet,
    sources: Mapping[Layer, Representations],
    layers: Sequence[Layer],
    notices: Sequence[str],
) -> dict[str, Any]:
    """Contents of `manifest.json` of an analysis.

    Parameters
    ----------
    spec : with the names of the features that are resolved by value
    whole, stimuli : all of them, and those that the analysis keeps
    sources : representations that each layer is of
    layers : that have results
    """
    models: dict[str, Any] = {}
    for model, n in layers:
        source = sources[model, n]
        known = models.setdefault(
            model, {"identity": source.identity, "layers": [], **source.facts}
        )
        known["layers"].append(n)
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
            "mlem": VERSION,
            "python": platform.python_version(),
            **{package: installed_version(package) for package in PACKAGES},
        },
        "machine": {"platform": platform.platform(), "cores": cores()},
    }


def command_options(spec: AnalysisSpec) -> list[str]:
    """Options of the command line that give an analysis: ["--stimuli=probing", ...].

    Raises InputError: a value that no option stands for, such as a name with a comma.
    """
    options: list[str] = []
    for name, value in chosen(spec).items():
        known = parameters()[name]
        option = f"--{(known.option or name).replace('_', '-')}"
        if value is True:
            options.append(option)
            continue
        for one in value if known.repeated and isinstance(value, tuple) else (value,):
            whole = known.repeated or not isinstance(one, tuple)
            text = option_text(one) if whole else join_names(map(str, one)) or "none"
            text = "all" if (name, one) == ("pairs", 0) else text
            if isinstance(one, tuple) and known.parse(text) != one:
                raise InputError(f"{short(text)} cannot be given as {option}; use Python.")
            options.append(f"{option}={text}")
    return options


def shell_line(command: str, spec: AnalysisSpec, *arguments: str) -> str:
    """A line for a shell, such as "mlem why minilm:3 gpt2:5 --stimuli=probing"."""
    return shlex.join(["mlem", command, *arguments, *command_options(spec)])


def python_lines(spec: AnalysisSpec, pair: tuple[Layer, Layer] | None = None) -> str:
    """Lines of Python that run an analysis, and explain two layers."""
    lines = ["from mlem_core import AnalysisSpec, explain, run", "", f"analysis = run({spec!r})"]
    if pair is not None:
        a, b = map(layer_name, pair)
        lines.append(f"print(explain(analysis, {a!r}, {b!r}))")
    return "\n".join([*lines, "analysis.plot.profiles()"])
