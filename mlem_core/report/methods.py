"""The methods paragraph of a run for a paper, with its numbers, and its references."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.analysis.planning import CHOSEN, said_of_choice
from mlem_core.analysis.results import Results
from mlem_core.base.labels import Names
from mlem_core.base.text import as_markdown, fraction, listed, many, span
from mlem_core.estimators.normal_equations import NOT_APART
from mlem_core.estimators.registry import ESTIMATORS, estimator_named
from mlem_core.estimators.ridge_solver import ALPHAS, GAIN
from mlem_core.extending import functions
from mlem_core.figures.context import FigureContext, held_out
from mlem_core.inference.resample import how_computed
from mlem_core.measures.contributions import EXACT_FEATURES, ORDERS
from mlem_core.measures.importance import PERMUTATIONS
from mlem_core.pairs.designs import n_pairs
from mlem_core.pairs.distances import PRECOMPUTED, distance_named
from mlem_core.pairs.resampling_units import Units
from mlem_core.report.formats import escape
from mlem_core.representations.registry import MODELS
from mlem_core.stimuli.columns import GIVEN

# Key -> its entry in BibTeX; one field a line, names as "Family, Given".
_ENTRIES = {
    entry[1]: entry[0]
    for entry in re.finditer(
        r"^@\w+\{(\w+),.*?^\}",
        Path(__file__).with_name("references.bib").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
}
KEYS = tuple(_ENTRIES)
METHOD = ("salle2024", "jalouzot2024", "vigna2015", "kriegeskorte2008")
_BY_ARCHITECTURE = {
    "BertModel": ("devlin2019bert",),
    "GPT2Model": ("radford2019gpt2",),
    "MambaModel": ("gu2023mamba",),
}
# Our own keys only: what a user wrote is never a citation.
_KEY = "|".join(KEYS)
_CITE = re.compile(rf"\[@((?:{_KEY})(?:, (?:{_KEY}))*)\]")


def _estimator(name: str, interactions: bool) -> str:
    """Fitting of a metric model, in words."""
    entry = estimator_named(name)
    cite = f" [@{entry.reference}]" if entry.reference else ""
    return f"{entry.sentence}{cite}{entry.constraint(interactions)}"


def methods_paragraph(
    analysis: Analysis,
    results: Results,
    selection: Selection | None = None,
    *,
    form: str = "markdown",
    names: Names | None = None,
    sure: str = "",
) -> str:
    """A methods paragraph: stimuli, models, distances, estimator, importance, similarity, versions.

    Parameters
    ----------
    analysis, results : the run, and the tables that are reported of it
    selection : that `results` is of, by default all of the analysis; its estimator is named
    form : "markdown", with citations in words, or "tex", with `\\citep{...}` for the entries of
        `bibtex`
    names : what features and models are called
    sure : sentences on intervals and tests, see `uncertainty`
    """
    names = names or Names()
    spec, manifest = analysis.spec, analysis.manifest
    chosen = analysis.select() if selection is None else selection
    estimator, interactions = chosen.estimator, chosen.interactions
    layers = results.scores.groupby("model", sort=False)["layer"].unique()
    models = {str(name): manifest["models"][name] for name in layers.index}
    versions = {name: version for name, version in manifest["versions"].items() if version}
    units, of_no_text = Units.from_stimuli(analysis.stimuli), analysis.stimuli.level == "stimulus"
    errors, folds = results.pair_errors, results.folds["fold"]
    special_tokens = [f["special_tokens"] for f in models.values() if "special_tokens" in f]
    n_layers = len(results.similarity_rsa)
    text = _template().render(
        results=results,
        n_all_pairs=n_pairs(results.n_stimuli),
        pairs_error=float(errors.loc[errors["measure"] == "rho", "error"].max()),
        spec=spec,
        stimuli=manifest["stimuli"],
        group=units.group,
        groups_of=units.groups,
        item="item" if of_no_text else "word or item",
        items="items" if of_no_text else "words or other items",
        **_features(manifest, results, names),
        **_systems(models, layers, analysis, names),
        pooling=sorted({str(facts["pooling"]) for facts in models.values() if "file" not in facts}),
        special_tokens=sorted({str(choice["choice"]) for choice in special_tokens}),
        distance=distance_named(spec.distance).phrase,
        n_terms=results.weights["feature"].nunique(),
        **_draws(analysis, chosen),
        estimator=_estimator(estimator, interactions) + said_of_choice(manifest, estimator),
        interactions=interactions,
        **_penalties(analysis, results),
        resolved=list(map(names.feature, results.resolved)),
        coding=results.coding,
        held_out=held_out(analysis),
        n_tested=int((folds >= 0).sum()),
        fold_sizes=folds[folds >= 0].value_counts(),
        n_layer_pairs=n_layers * (n_layers - 1) // 2,
        sure=sure,
        rho=results.scores.groupby(["model", "layer"])["rho"].mean(),
        of_extensions=[text for of in functions("methods") for text in of(analysis, names)],
        version=versions.pop("mlem", ""),
        packages=[f"{name} {version}" for name, version in versions.items()],
        notices=analysis.notices,
    )
    parts = _CITE.split(text)
    cited = [one.split(", ") for one in parts[1::2]]
    if form == "tex":
        parts[::2] = [_escaped(part) for part in parts[::2]]
        parts[1::2] = [rf"\citep{{{','.join(keys)}}}" for keys in cited]
    else:
        named = ["; ".join(short_citation(key) for key in keys) for keys in cited]
        parts[::2] = [_escaped(part, as_markdown) for part in parts[::2]]
        parts[1::2] = [f"({names})" for names in named]
    return "".join(parts) + "\n"


def texts(
    analysis: Analysis, results: Results, selection: Selection, names: Names, sure: str = ""
) -> dict[str, str]:
    """The methods paragraph in both forms, and the references: methods.md, .tex, references.bib."""
    of: Any = analysis, results, selection
    return {
        "methods.md": methods_paragraph(*of, names=names, sure=sure),
        "methods.tex": methods_paragraph(*of, names=names, sure=sure, form="tex"),
        "references.bib": bibtex(analysis.manifest),
    }


def _draws(analysis: Analysis, selection: Selection) -> dict[str, Any]:
    """What of importances and contributions is drawn, and how often; what a choice had to gain."""
    chosen = analysis.manifest.get(CHOSEN, {}).get("estimator")
    return {
        "gain": fraction(GAIN) if chosen == selection.estimator else "",
        "grouped": analysis.compute_pairs(selection).tests.is_grouped,
        "n_permutations": PERMUTATIONS,
        "n_orders": ORDERS * (len(selection.features) > EXACT_FEATURES),
    }


def _penalties(analysis: Analysis, results: Results) -> dict[str, Any]:
    """The chosen penalties, their grid, and how many lie at its edge."""
    alphas = results.scores["alpha"].dropna()
    apart = alphas >= NOT_APART
    # What is shown may leave out the features that are resolved.
    as_fitted = bool(results.resolved) == bool(analysis.pairs.resolved)
    grid, known = analysis.manifest["alphas"] if as_fitted else ALPHAS, alphas[~apart]
    edge = int(known.isin([grid[0], grid[-1]]).sum())
    return {"grid": grid, "alphas": known, "n_edge": edge, "n_not_apart": int(apart.sum())}


def uncertainty(shown: FigureContext) -> str:
    """Sentences on the choice of the two layers, on chance, intervals and tests, where known."""
    said, stimuli, bounds = [], shown.analysis.stimuli, shown.intervals
    if shown.several:
        why = shown.why
        chosen = (
            f"the most similar of {why.among}, bounded at once" if why.among else "named by hand"
        )
        said.append(f"The two layers in detail, {listed(why.called)}, were {chosen}.")
        if "chance" in why.terms:
            of_units = zip(why.features["term"], why.features["unit"], strict=True)
            each = [f"{why.names.feature(name)} ({unit})" for name, unit in of_units]
            over = Units.from_stimuli(stimuli).over
            said.append(f"Their 95 % CI are over {over}, {why.how}.")
            said.append(f"Labels of features were permuted among units: {listed(each)}.")
    if bounds is not None and shown.score_tests is not None:
        units = bounds.units
        n = [many(units.n_sentences, units.group), many(units.n_items, units.item)]
        said.append(how_computed(shown.selection.estimator, units))
        said.append(f"There were {listed(n[: 1 + units.two_way])}.")
        tests = filter(None, (shown.score_tests, shown.similarity_tests))
        said.append(f"p-values are corrected over {listed([test.family for test in tests])}.")
    return " ".join(said)


def _features(manifest: Mapping[str, Any], results: Results, names: Names) -> dict[str, list[str]]:
    """All features with their kinds, and those that are given by their distances, by kind."""
    every = manifest["stimuli"]["features"]
    kinds = {name: every[name] for name in every if name in results.feature_correlations}
    given: dict[str, list[str]] = {
        kind: [names.feature(name) for name, its in kinds.items() if its == kind] for kind in GIVEN
    }
    called = {"rdm": "RDM", "nominal": "categorical", "ordered": "numeric"}
    features = [f"{names.feature(name)} ({called.get(kind, kind)})" for name, kind in kinds.items()]
    return {"features": features, **given}


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    environment.filters |= {
        "listed": listed,
        "plural": many,
        "short": "{:g}".format,
        "thousands": "{:,}".format,
    }
    file = Path(__file__).with_name("templates") / "methods.jinja"
    return environment.from_string(" ".join(file.read_text(encoding="utf-8").split()))


def _escaped(part: str, escaped: Callable[[str], str] = escape) -> str:
    """Escaped for LaTeX, or for Markdown, with the space at its ends."""
    begin, end = (" " * (part[at : at + 1 or None] == " ") for at in (0, -1))
    return f"{begin}{escaped(part)}{end}"


def _systems(
    models: Mapping[str, Mapping[str, Any]], layers: Any, analysis: Analysis, names: Names
) -> dict[str, Any]:
    """The models, the subjects, and which of them came as distances."""
    spec = analysis.spec
    return {
        "models": [
            _model(name, facts, layers[name], names, name in spec.precomputed)
            for name, facts in models.items()
            if name not in spec.subject_names
        ],
        "subjects": _subjects(models, layers, analysis, names),
        "given": [names.model(name) for name in spec.precomputed if name in models],
        "all_given": spec.distance == PRECOMPUTED or {*models} <= {*spec.precomputed},
    }


def _subjects(
    models: Mapping[str, Mapping[str, Any]], layers: Any, analysis: Analysis, names: Names
) -> list[str]:
    """The subjects of each file, and their layers that are shown."""
    spec, files = analysis.spec, dict[tuple[str, str], list[str]]()
    for name in models:
        if name in spec.subject_names:
            about = _file(models[name], name in spec.precomputed)
            files.setdefault((about, _layers(layers[name])), []).append(names.model(name))
    return [f"{listed(subjects)} ({'; '.join(of)})" for of, subjects in files.items()]


def _file(facts: Mapping[str, Any], given: bool) -> str:
    """What came from which file."""
    content = "distances" if given else "representations"
    return f"{content} from the file {facts['file']}, SHA-256 {facts['sha256'][:12]}"


def _layers(layers: Sequence[int]) -> str:
    return f"layer{'s' * (len(layers) > 1)} {span(sorted(layers))}"


def _model(
    name: str, facts: Mapping[str, Any], layers: Sequence[int], names: Names, given: bool
) -> str:
    """A model and the layers of it that are shown; of one that was renamed the identifier too."""
    if "file" in facts:
        about = _file(facts, given)
    else:
        known = MODELS.get(name.partition("@")[0])
        parts = (
            known.public if known else "",
            str(facts.get("architecture", "")),
            str(facts.get("note", "")),
            f"revision {facts['revision']}",
            f"weights {facts['weights'][:12]}",
            "" if facts["dtype"] == "float32" else str(facts["dtype"]),
        )
        about = ", ".join(filter(None, parts))
    cited = _model_keys(name, facts)
    cite = f" [@{', '.join(cited)}]" if cited else ""
    called = names.model(name)
    about = about if called == name else f"{name}, {about}"
    return f"{called} ({about}; {_layers(layers)}){cite}"


def _model_keys(name: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys of what a model is from; none where it is not known.

    Parameters
    ----------
    facts : of the manifest's `models`
    """
    for model in MODELS.values():
        if model.references and model.name in name.casefold():
            return model.references
    return _BY_ARCHITECTURE.get(str(facts.get("architecture")), ())


def short_citation(key: str) -> str:
    """ "Salle et al., 2024" of "salle2024"."""
    fields = dict(re.findall(r"^  (\w+) = \{(.*)\},$", _ENTRIES[key], re.MULTILINE))
    names = [author.partition(",")[0] for author in fields["author"].split(" and ")]
    if len(names) > 2 or "others" in names:
        names = [f"{names[0]} et al."]
    return f"{' and '.join(names)}, {fields['year']}"


def bibtex(manifest: Mapping[str, Any]) -> str:
    """Entries of the method's papers and of the models that an analysis used, where known."""
    used = [key for name, facts in manifest["models"].items() for key in _model_keys(name, facts)]
    fits = [spec.reference for spec in ESTIMATORS.values() if spec.reference]
    return "\n\n".join(_ENTRIES[key] for key in dict.fromkeys((*METHOD, *fits, *used))) + "\n"
