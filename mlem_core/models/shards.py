"""Hidden states of one model by several workers that share a store: a shard of its sentences each.

A shard is a run of whole batches of the plan that one process has for all sentences, so that each
forward pass is the same, and so are the numbers. It is an entry of the store until the shards of
the model are put together, so that work that was broken off goes on from those that are there.
"""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.parallel import look
from mlem_core.base.typing import IntArray
from mlem_core.data.stimuli import StimulusSet
from mlem_core.models.extraction import (
    STAGE,
    VERSION,
    ExtractionOptions,
    LayerFiles,
    batches,
    facts_of,
    first_of_context,
    layer_file,
    token_budget,
    write_rows,
)
from mlem_core.models.forward import LoadedModel
from mlem_core.models.loading import open_model
from mlem_core.models.registry import identity
from mlem_core.models.tokens import TokenizedStimuli, tokenize
from mlem_core.storage.stage import Stage
from mlem_core.storage.store import Store

SHARDS = "representation-shards"
# Of the different sentences, about 100,000 tokens: a shard takes longer than loading most models.
CHARACTERS = 400_000
_ROWS, _FACTS, _FIRST = "rows.npy", "facts.json", "first.npy"
_AT_ONCE = 4096  # rows that are put together at a time


def _save_budget(budget: int, folder: Path) -> None:
    (folder / "budget.json").write_text(json.dumps(budget))


def _load_budget(folder: Path) -> int:
    return int(json.loads((folder / "budget.json").read_text()))


# Tokens of a batch. Kept, as on a GPU it depends on the memory that is free, and shards are parts
# of one plan.
_BUDGET = Stage("representation-plan", VERSION, _save_budget, _load_budget)


def count_shards(stimuli: StimulusSet) -> int:
    """In how many shards a model reads the sentences: by how much text there is alone."""
    sentences = set(stimuli.sentences)
    return min(len(sentences), max(1, -(-sum(map(len, sentences)) // CHARACTERS)))


def shard(plan: list[IntArray], lengths: IntArray, number: int, n_shards: int) -> list[IntArray]:
    """The batches of a shard: each shard has about as many tokens; it may have no batch.

    Parameters
    ----------
    plan : all batches of sentences
    lengths : (n_sentences,) tokens of each
    """
    tokens = np.array([int(lengths[batch].sum()) for batch in plan])
    before = np.cumsum(tokens) - tokens
    of = before * n_shards // tokens.sum()
    return [plan[i] for i in np.flatnonzero(of == number)]


@dataclass(frozen=True)
class ShardedModel:
    """A model in shards.

    Attributes
    ----------
    depends_on : see `mlem_core.models.representations.depends_on`
    """

    name: str
    n_shards: int
    depends_on: dict[str, str]

    def shard_key(self, number: int) -> dict[str, Any]:
        """What the entry of a shard depends on."""
        return {**self.depends_on, "shard": number, "of": self.n_shards}

    def folder(self, store: Store, number: int) -> Path:
        """Where the entry of a shard is, once it is there."""
        return store.folder(SHARDS, VERSION, **self.shard_key(number))

    def whole(self, store: Store) -> Path:
        """Where the entry of all sentences is, once it is there."""
        return store.folder(STAGE, VERSION, **self.depends_on)

    def there(self, store: Store) -> tuple[int, ...]:
        """The shards that are done."""
        return tuple(n for n in range(self.n_shards) if self.folder(store, n).exists())

    def forget(self, store: Store) -> None:
        """Remove the shards, once they are put together."""
        for number in range(self.n_shards):
            if self.folder(store, number).exists():
                store.remove(SHARDS, VERSION, **self.shard_key(number))
        if _BUDGET.where(store, self.depends_on) is not None:
            store.remove(_BUDGET.name, _BUDGET.version, **self.depends_on)


class Part(NamedTuple):
    """What a worker found when it had done its part of a model.

    Attributes
    ----------
    done : the shards that are in the store, or have been put together
    failed : the shard that could not be made, and why
    """

    done: tuple[int, ...]
    failed: tuple[int, InputError] | None = None


class _Elsewhere(Exception):
    """Another worker makes this entry, or need not any more."""


class _Kept(threading.local):
    """The model that this thread has open, and the stimuli as it reads them.

    Not shared among threads: the layers of a pass are had by hooks on the model.
    """

    what: tuple[str, ...] = ()
    loaded: LoadedModel | None = None
    read: tuple[dict[str, str], TokenizedStimuli] | None = None


_kept = _Kept()


def take_part(
    stimuli: StimulusSet, options: ExtractionOptions, store: Store, model: ShardedModel
) -> Part:
    """Make the shards of a model that nobody has made or makes, and put all together if they are.

    Whoever comes first does all of them, and those who come while it does help: so a worker loads
    few models where there are many, and many workers share the only one. The model is loaded when
    a shard needs it, and stays open until another one is wanted.
    """
    every = tuple(range(model.n_shards))
    if model.whole(store).exists():
        model.forget(store)
        return Part(every)

    def entry(number: int) -> Path:
        make = partial(_make, stimuli, options, store, model, number)
        return store.entry(SHARDS, VERSION, make, _skip, **model.shard_key(number))

    # Whether a folder is there, not `Store.find`: that reads all of what others made.
    for number in every:
        try:
            if not model.folder(store, number).exists():
                entry(number)
        except _Elsewhere:
            continue
        except InputError as error:
            return Part(model.there(store), (number, error))
    there = model.there(store)
    if len(there) < model.n_shards:
        return Part(there)

    def together(folder: Path) -> None:
        _put_together([entry(number) for number in every], len(stimuli), folder)

    with contextlib.suppress(_Elsewhere):
        store.entry(STAGE, VERSION, together, _skip, **model.depends_on)
        model.forget(store)
    return Part(every)


def _skip() -> None:
    raise _Elsewhere


def _opened(model: ShardedModel, options: ExtractionOptions) -> LoadedModel:
    """The model, loaded if it is not the one that is open; raises as `open_model`."""
    own = identity(model.name)
    if own != model.depends_on["model"]:
        raise InputError(
            f"the model {model.name} is another one ({own[:12]}) than where the analysis was "
            f"started ({model.depends_on['model'][:12]}); give both the same files."
        )
    what = model.name, own, options.device, options.dtype
    if _kept.loaded is None or _kept.what != what:
        # Let go before the next one is loaded: there may be room for one.
        _kept.loaded = _kept.read = None
        _kept.loaded, _kept.what = open_model(model.name, options.device, options.dtype), what
    try:
        _kept.loaded.check_is(own)
    except InputError:
        _kept.loaded = None  # to be read again
        raise
    return _kept.loaded


def _read(
    stimuli: StimulusSet, loaded: LoadedModel, options: ExtractionOptions, model: ShardedModel
) -> TokenizedStimuli:
    if _kept.read is None or _kept.read[0] != model.depends_on:
        _kept.read = model.depends_on, tokenize(stimuli, loaded, options.special_tokens)
    return _kept.read[1]


def _make(
    stimuli: StimulusSet,
    options: ExtractionOptions,
    store: Store,
    model: ShardedModel,
    number: int,
    folder: Path,
) -> None:
    """Write a shard: its stimuli (rows), their layers; the first has what is said of all too."""
    if model.whole(store).exists():
        raise _Elsewhere  # put together and removed since we looked
    loaded = _opened(model, options)
    tokenized = _read(stimuli, loaded, options, model)
    budget = _BUDGET.get(store, model.depends_on, lambda: token_budget(loaded))
    lengths = tokenized.lengths
    own = shard(batches(lengths, budget), lengths, number, model.n_shards)
    rows = [tokenized.stimuli[sentence] for batch in own for sentence in batch]
    kept = np.sort(np.concatenate(rows)) if rows else np.empty(0, dtype=np.int64)
    np.save(folder / _ROWS, kept)
    if not rows:
        return
    to = kept, folder
    widths = write_rows(tokenized, loaded, own, to, options.pooling, lambda *_: look())
    if number == 0:
        facts = facts_of(stimuli, tokenized, loaded, options, widths)
        (folder / _FACTS).write_text(json.dumps(facts, indent=1))
        if loaded.causal:
            np.save(folder / _FIRST, first_of_context(tokenized))


def _put_together(shards: list[Path], n_stimuli: int, folder: Path) -> None:
    """Write the files of all stimuli from those of the shards, in their order."""
    said = (shards[0] / _FACTS).read_text()
    widths = json.loads(said)["units"]
    with LayerFiles.new(folder, n_stimuli, widths) as files:
        for one in shards:
            rows = np.load(one / _ROWS, allow_pickle=False)
            for begin in range(0, len(rows), _AT_ONCE):
                look()
                now = slice(begin, begin + _AT_ONCE)
                # Mapped anew each time: pages that were read count as ours until they are let go.
                layers = (
                    np.load(layer_file(one, layer), mmap_mode="r", allow_pickle=False)
                    for layer in range(len(widths))
                )
                files.write(rows[now], [layer[now] for layer in layers])
        first = shards[0] / _FIRST
        if first.exists():
            files.repeat(np.load(first, allow_pickle=False))
    (folder / _FACTS).write_text(said)
