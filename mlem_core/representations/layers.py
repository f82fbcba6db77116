"""Representations: one array a layer; those of a model, through the store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.errors import unknown
from mlem_core.base.resources import give_back_memory
from mlem_core.base.typing import Counted
from mlem_core.representations.array_files import npy_file
from mlem_core.representations.extraction import (
    STAGE,
    STANDARD,
    VERSION,
    ExtractionOptions,
    extract,
    layer_file,
)
from mlem_core.representations.forward import LoadedModel
from mlem_core.representations.loading import open_model
from mlem_core.representations.registry import identity
from mlem_core.representations.tokens import SPECIAL_TOKENS, pooled
from mlem_core.stimuli.columns import coded
from mlem_core.stimuli.stimulus_set import StimulusSet, add_json
from mlem_core.storage.store import Store


@dataclass(frozen=True)
class Representations:
    """The representations of the stimuli in one system: (n_stimuli, n_units) for each layer.

    Attributes
    ----------
    name : what the user calls it.
    identity : digest of everything the arrays depend on; for a file, of its content.
    layers : the layers' numbers, rising; layer 0 of a model is its embeddings. Where only some
        of a model's layers were kept these are some of `every_layer`.
    n_stimuli : rows of each array, in the order of the stimuli.
    facts : what the manifest says about it (revision, dtype, pooling, special tokens ...).
    left_out : a sentence for each layer that a file has but that cannot be used.
    notes : sentences about how a file was read.
    distances : whether the arrays are distances already, (n_stimuli, n_stimuli) each.
    folder : of the store, where they lie; who sees it can read them too.
    """

    name: str
    identity: str
    layers: tuple[int, ...]
    n_stimuli: int
    facts: Mapping[str, Any]
    _read: Callable[[int], NDArray[np.floating]]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    distances: bool = False
    folder: Path | None = None

    def __getitem__(self, layer: int) -> NDArray[np.floating]:
        """The array (n_stimuli, n_units) of a layer; `InputError` where there is none."""
        if layer not in self.layers:
            raise unknown(f"layer of {self.name}", str(layer), map(str, self.layers))
        return self._read(layer)

    @property
    def every_layer(self) -> tuple[int, ...]:
        """The numbers of all layers of the model or file."""
        n: int | None = self.facts.get("n_layers")
        return self.layers if n is None else tuple(range(n))

    def rows(self, layer: int, stimuli: NDArray[np.integer]) -> NDArray[np.floating]:
        """The rows of some stimuli in a layer, or the distances among them."""
        array = self[layer]
        return array[np.ix_(stimuli, stimuli)] if self.distances else array[stimuli]

    def take(self, stimuli: NDArray[np.integer]) -> Representations:
        """Those of some stimuli, with the same identity: which stimuli is not part of it."""
        return self.with_arrays(partial(self.rows, stimuli=stimuli), n_stimuli=len(stimuli))

    def with_arrays(
        self, read: Callable[[int], NDArray[np.floating]], **changes: Any
    ) -> Representations:
        """Those with other arrays, which `read` gives of a layer, and other fields."""
        return replace(self, _read=read, **changes)


def from_model(
    stimuli: StimulusSet,
    model: str | LoadedModel,
    store: Store,
    options: ExtractionOptions = STANDARD,
    progress: Counted | None = None,
) -> Representations:
    """All layers' hidden states of the stimuli, from the store or else from the model.

    A word stimulus is represented by the state of its last sub-token, a sentence by the mean
    over its tokens, start and end tokens left out. Layer 0 is what enters the first block,
    layer k what leaves block k (the last one after the final norm, where there is one).

    Parameters
    ----------
    model : a name, see `mlem_core.representations.registry`; or a model that is already open.
    progress : called with (done, total) sentences, at least once a second on a usual machine;
        what it raises stops the work and leaves nothing behind.

    Raises ModelUnavailable, InputError: as `open_model`; and naming the row, for a sentence longer
    than the model reads or a word that the tokenizer has no token for.
    """
    report = progress or (lambda done, total: None)
    n_sentences = len(set(stimuli.sentences))
    key = entry_key(stimuli, model, options)
    if options.layers is not None:
        stored = kept_states(stimuli, model, store, options)
        if stored is not None:
            report(n_sentences, n_sentences)
            return stored

    # No `EntryKind`: the arrays are larger than memory and written as they are computed.
    def make(folder: Path) -> None:
        report(0, n_sentences)
        loaded = model
        if isinstance(loaded, str):
            loaded = open_model(loaded, options.device, options.dtype)
        loaded.check_is(key["model"])
        facts = extract(stimuli, loaded, folder, options, report)
        (folder / "facts.json").write_text(json.dumps(facts, indent=1))
        del loaded
        give_back_memory()

    folder = store.entry(STAGE, VERSION, make, lambda: report(0, n_sentences), **key)
    report(n_sentences, n_sentences)
    return _stored(folder, stimuli, model)


def kept_states(
    stimuli: StimulusSet,
    model: str | LoadedModel,
    store: Store,
    options: ExtractionOptions = STANDARD,
) -> Representations | None:
    """The representations that `from_model` gives if they are in the store, else None.

    In the place of some layers they may be all of them.
    """
    folder = store.find(STAGE, VERSION, **entry_key(stimuli, model, options))
    if folder is None and options.layers is not None:
        return kept_states(stimuli, model, store, replace(options, layers=None))
    return None if folder is None else _stored(folder, stimuli, model)


def entry_key(
    stimuli: StimulusSet, model: str | LoadedModel, options: ExtractionOptions
) -> dict[str, Any]:
    """The key of the entry of hidden states beside `STAGE` and `VERSION`: all they depend on.

    Raises InputError: there is no such model or pooling.
    """
    return {
        "stimuli": _digest(stimuli),
        "model": identity(model) if isinstance(model, str) else model.identity,
        "pooling": pooled(stimuli.level, options.pooling).label,
        "special_tokens": SPECIAL_TOKENS[options.special_tokens],
        "dtype": options.dtype if isinstance(model, str) else model.dtype,
        **({} if options.layers is None else {"layers": list(options.layers)}),
    }


def _digest(stimuli: StimulusSet) -> str:
    """Digest of what the hidden states depend on: not the features, so that those may change."""
    # That of [sentences, word_index] as JSON.
    digest = hashlib.sha256(b"[[")
    add_json(digest, *coded(pd.Series(stimuli.sentences)), ", ")
    words = None if stimuli.word_index is None else stimuli.word_index.tolist()
    digest.update(f"], {json.dumps(words)}]".encode())
    return digest.hexdigest()


def _stored(folder: Path, stimuli: StimulusSet, model: str | LoadedModel) -> Representations:
    facts = json.loads((folder / "facts.json").read_text())
    return Representations(
        name=model if isinstance(model, str) else model.name,
        identity=folder.name,  # the key
        layers=tuple(facts.get("kept", range(len(facts["units"])))),
        n_stimuli=len(stimuli),
        facts=facts,
        _read=lambda layer: npy_file(layer_file(folder, layer)),
        folder=folder,
    )
