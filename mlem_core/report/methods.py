"""What was done, in a paragraph for a paper, with the numbers of this run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.results import Results
from mlem_core.base.text import listed, many, span
from mlem_core.estimators.registry import estimator_named
from mlem_core.pairs.distances import distance_named
from mlem_core.report import references
from mlem_core.report.latex import escape

# Our own keys only: what a user wrote is never a citation.
_KEY = "|".join(references.KEYS)
_CITE = re.compile(rf"\[@((?:{_KEY})(?:, (?:{_KEY}))*)\]")

_MISSING = {
    "ignore": "a missing value on either side gave distance 0",
    "level": "a missing value counted as a value of its own",
}
_UNITS = {
    "standardised": "Each unit was given variance 1 over the stimuli.",
    "without-outliers": "Units whose variance stands far above the others' were left out.",
}


def methods_paragraph(
    analysis: Analysis,
    results: Results,
    *,
    estimator: str | None = None,
    interactions: bool | None = None,
    form: str = "markdown",
) -> str:
    """A methods paragraph: stimuli, models, distances, estimator, importance, similarity, versions.

    Parameters
    ----------
    analysis, results : the run, and the tables that are reported of it
    estimator, interactions : with which `results` was made, by default those of the analysis
    form : "markdown", with citations in words, or "tex", with `\\citep{...}` for the entries of
        `mlem_core.report.references.bibtex`
    """
    estimator = analysis.spec.estimator if estimator is None else estimator
    interactions = analysis.spec.interactions if interactions is None else interactions
    sentences = [
        _stimuli(analysis, results),
        *_models(analysis, results),
        _distances(analysis),
        _fit(analysis, results, estimator, interactions),
        "The score is Spearman's ρ with average ranks over the pairs of held-out stimuli; the "
        "importance of a feature is the drop of that score when the feature's distances are "
        "permuted over the pairs (its expectation over permutations, computed rather than "
        f"sampled), averaged over the {results.n_folds} folds [@salle2024, jalouzot2024].",
    ]
    if len(results.similarity_rsa) > 1:
        sentences.append(_similarity(results))
    sentences.append(_versions(analysis))
    if analysis.notices:
        sentences.append("Of this run it must be said: " + " ".join(analysis.notices))
    text = " ".join(sentences)
    parts = _CITE.split(text)
    cited = [one.split(", ") for one in parts[1::2]]
    if form == "tex":
        parts[::2] = [_escaped(part) for part in parts[::2]]
        parts[1::2] = [rf"\citep{{{','.join(keys)}}}" for keys in cited]
    else:
        named = ["; ".join(references.in_words(key) for key in keys) for keys in cited]
        parts[1::2] = [f"({names})" for names in named]
    return "".join(parts) + "\n"


def _escaped(part: str) -> str:
    """Escaped for LaTeX, with the space at its ends."""
    begin, end = (" " * (part[at : at + 1 or None] == " ") for at in (0, -1))
    return f"{begin}{escape(part)}{end}"


def versions_text(manifest: Mapping[str, Any]) -> str:
    """A line a package, with its version."""
    kept = {name: version for name, version in manifest["versions"].items() if version}
    return "".join(f"{name} {version}\n" for name, version in kept.items())


def _stimuli(analysis: Analysis, results: Results) -> str:
    manifest = analysis.manifest["stimuli"]
    level = "words in" if manifest["level"] == "word" else "stimuli, of"
    features = [
        f"{name} ({kind})"
        for name, kind in manifest["features"].items()
        if name in results.feature_correlations
    ]
    return (
        f"The stimuli were {results.n_stimuli:,} {level} {manifest['n_sentences']:,} "
        f"sentences ({manifest['name']}, SHA-256 {manifest['digest'][:12]}), annotated with "
        f"{many(len(features), 'feature')}: {listed(features)}; every one of their "
        f"{results.n_pairs:,} pairs was used."
    )


def _models(analysis: Analysis, results: Results) -> list[str]:
    shown = {
        str(model): sorted(int(layer) for layer in rows["layer"].unique())
        for model, rows in results.scores.groupby("model", sort=False)
    }
    texts = []
    pooling = set()
    for name, layers in shown.items():
        facts = analysis.manifest["models"][name]
        if "file" in facts:
            about = f"representations from the file {facts['file']}, SHA-256 {facts['sha256'][:12]}"
        else:
            about = ", ".join(
                part
                for part in (
                    str(facts.get("architecture", "")),
                    str(facts.get("note", "")),
                    f"revision {facts['revision']}",
                    f"weights {facts['weights'][:12]}",
                    "" if facts["dtype"] == "float32" else str(facts["dtype"]),
                )
                if part
            )
            pooling.add(str(facts["pooling"]))
        cited = references.of_model(name, facts)
        cite = f" [@{', '.join(cited)}]" if cited else ""
        texts.append(f"{name} ({about}; layer{'s' * (len(layers) > 1)} {span(layers)}){cite}")
    sentences = [f"They were represented by {listed(texts)}."]
    if pooling:
        sentences.append(
            f"Of a model the state of the {listed(sorted(pooling))} was taken; layer 0 is what "
            "enters the first block and layer k what leaves block k."
            if pooling == {"last sub-token of the word"}
            else f"Of a model the {listed(sorted(pooling))} was taken; layer 0 is what enters the "
            "first block and layer k what leaves block k."
        )
        choices = {
            str(analysis.manifest["models"][name]["special_tokens"]["choice"])
            for name in shown
            if "special_tokens" in analysis.manifest["models"][name]
        }
        sentences.append(f"Start and end tokens were {listed(sorted(choices))}.")
    if analysis.spec.positions == "without-first":
        sentences.append("Words at the first position of their sentence were left out.")
    if analysis.spec.units in _UNITS:
        sentences.append(_UNITS[analysis.spec.units])
    return sentences


def _distances(analysis: Analysis) -> str:
    neural = distance_named(analysis.spec.distance).phrase
    return (
        f"The neural distance of two stimuli was {neural} of their representations, their distance "
        "on a nominal feature 1 if the values differ and 0 otherwise, on an ordered one the "
        f"difference divided by the range over all stimuli; {_MISSING[analysis.spec.missing]}."
    )


def _fit(analysis: Analysis, results: Results, estimator: str, interactions: bool) -> str:
    n_terms = results.weights["feature"].nunique()
    weights = many(n_terms, "weight")
    if interactions:
        weights += " (features and the products of every two)"
    chosen = estimator_named(estimator)
    how = chosen.sentence
    if chosen.reference:
        how += f" [@{chosen.reference}]"
    how += chosen.constraint_with_interactions if interactions else chosen.constraint
    text = (
        "For each layer a metric-learning encoding model (squared distance as a weighted sum of "
        f"squared feature distances, {weights}) was fitted by {how},"
        f" in {results.n_folds}-fold cross-validation over groups of stimuli (seed "
        f"{analysis.spec.seed}): no stimulus is in both training and test pairs"
    )
    alphas = np.asarray(results.scores["alpha"], dtype=np.float64)
    alphas = alphas[~np.isnan(alphas)]
    if len(alphas):
        grid = analysis.manifest["alphas"]
        text += (
            f"; the ridge penalty α was chosen among {len(grid)} values from {grid[0]:g} to "
            f"{grid[-1]:g} by nested cross-validation on the mean ρ (chosen: median "
            f"{np.median(alphas):g}, from {alphas.min():g} to {alphas.max():g})"
        )
    means = results.scores.groupby(["model", "layer"])["rho"].mean()
    return (
        f"{text}. The mean held-out ρ of the {len(means)} layers was between {means.min():.3f} and "
        f"{means.max():.3f}."
    )


def _similarity(results: Results) -> str:
    text = (
        "Layers were compared by the weighted Kendall τ of their mean importances (hyperbolic "
        "weights [@vigna2015]) and by representational similarity analysis, Spearman's ρ of their "
        "neural distances over all pairs [@kriegeskorte2008]"
    )
    if np.isfinite(results.agreement):
        text += (
            f"; the two agree with a Spearman's ρ of {results.agreement:.2f} over the pairs of "
            "layers"
        )
    return text + ". Maps of layers are metric multidimensional scalings of one minus each."


def _versions(analysis: Analysis) -> str:
    kept = {name: version for name, version in analysis.manifest["versions"].items() if version}
    own = kept.pop("mlem", "")
    named = listed([f"{name} {version}" for name, version in kept.items()])
    return f"Computed with MLEM Explorer {own} on {named}."
