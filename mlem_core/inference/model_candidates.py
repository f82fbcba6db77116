"""Candidates that a model gives: its tokens and predictions, and distances in other layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.source import SURPRISAL, added_column
from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray, Layer, layer_name
from mlem_core.data.candidates import Candidate
from mlem_core.data.stimuli import Rdm, StimulusSet
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.storage.store import Store

LeftOut = list[tuple[str, str]]


def model_candidates(
    analysis: Analysis, stimuli: StimulusSet, pairs: LayerPairs, store: Store
) -> tuple[list[Candidate], LeftOut]:
    """Candidates of the models of an analysis for what explains some layers, and what is not there.

    Sub-tokens in the models of the layers; surprisal, entropy and most likely next token in the
    first causal model of the analysis, those of the layers before others; the distances in layer 0
    of the models of the layers, and in the layer of each other model that is as deep.

    Parameters
    ----------
    stimuli : those of the pairs
    """
    own, files = [*dict.fromkeys(model for model, _ in pairs.layers)], analysis.spec.representations
    models = dict.fromkeys([*own, *(model for model, _ in analysis.layers)])
    left_out: LeftOut = []
    found = _of_layers(analysis, pairs, store, left_out)
    of_text = [name for name in models if name not in dict(files)]
    if stimuli.level == "word":
        found += _of_text(stimuli, of_text, own, analysis.spec.device, left_out)
    return found, left_out


def _of_text(
    stimuli: StimulusSet, models: Sequence[str], own: Sequence[str], device: str, left_out: LeftOut
) -> list[Candidate]:
    """Sub-tokens in some models, and predictions of the first that is causal."""
    from mlem_core.models.loading import load_with_head, open_model
    from mlem_core.models.surprisal import tokenized, word_predictions

    found: list[Candidate] = []
    causal = ""
    for name in models:
        if causal and name not in own:
            break
        try:
            loaded = open_model(name, device)
            tokens = tokenized(stimuli, loaded)
            if name in own:
                counts = np.diff(tokens.spans, axis=1)[:, 0] + 1
                found.append(_given(f"sub_tokens_{name}", f"sub-tokens in {name}", counts))
            if loaded.causal and not causal:
                causal = name
                of = word_predictions(tokens, loaded, load_with_head(loaded))
                likely = loaded.tokenizer.convert_ids_to_tokens(of.likeliest.tolist())
                found += [
                    _given(
                        added_column(f"{SURPRISAL}:{name}"),
                        f"the surprisal in {name}",
                        of.surprisal,
                    ),
                    _given(f"entropy_{name}", f"the entropy of what follows in {name}", of.entropy),
                    Candidate(
                        f"next_token_{name}",
                        f"the most likely next token in {name}",
                        lambda _, likely=likely: likely,  # type: ignore[misc]
                    ),
                ]
        except InputError as error:
            left_out.append((f"tokens and predictions of {name}", str(error).rstrip(".")))
    return found


def _given(name: str, label: str, numbers: FloatArray) -> Candidate:
    return Candidate(name, label, lambda _: numbers, "ordered")


def _of_layers(
    analysis: Analysis, pairs: LayerPairs, store: Store, left_out: LeftOut
) -> list[Candidate]:
    """Distances in the embeddings of the models of some layers, and in layers of others as deep."""
    of_model: dict[str, list[int]] = {}
    for model, number in analysis.layers:
        of_model.setdefault(model, []).append(number)
    deepest = {model: max(*numbers, 1) for model, numbers in of_model.items()}
    depth = float(np.mean([number / deepest[model] for model, number in pairs.layers]))
    own, files = {model for model, _ in pairs.layers}, dict(analysis.spec.representations)
    asked: list[Layer] = [(model, 0) for model in sorted(own - {*files}) if 0 in of_model[model]]
    for model, numbers in of_model.items():
        if model not in own:
            nearest = min(numbers, key=lambda n: abs(n / deepest[model] - depth))
            asked.append((model, nearest))
    found = []
    for layer in asked:
        if layer not in pairs.layers:
            try:
                found.append(_distances(LayerPairs.of_sample(analysis, [layer], store)))
            except InputError as error:
                left_out.append((layer_name(layer), str(error).rstrip(".")))
    return found


def _distances(pairs: LayerPairs) -> Candidate:
    """Distances in one layer; stimuli at distance 0 are one value."""
    name, n = layer_name(pairs.layers[0]), len(pairs.groups)
    square = np.zeros((n, n))
    first, second = pairs.design.ends(np.arange(len(pairs.cells)))
    square[first, second] = square[second, first] = np.sqrt(pairs.squared[0])
    values, of = np.unique(np.argmax(square <= 0, axis=1), return_inverse=True)
    cells = [f"stimulus {row + 1}" for row in values]
    rdm = Rdm(tuple(cells), square[np.ix_(values, values)])
    own = [cells[number] for number in of.reshape(-1)]
    return Candidate(name, f"the distances in {name}", lambda _: own, "rdm", rdm=rdm)
