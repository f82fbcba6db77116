"""Hidden states of the stimuli from a model, written to disk batch by batch.

Every different sentence goes through the model once, all layers come from that one forward pass.
Batches hold sentences of equally many tokens, so that nothing is ever padded: no mask and no
position has to be given, and models that know neither (Mamba, RWKV) need no other way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, check_choice, errors_as_sentence
from mlem_core.base.typing import Counted, IntArray
from mlem_core.representations import forward
from mlem_core.representations.forward import LoadedModel
from mlem_core.representations.tokens import (
    SPECIAL_TOKENS,
    PooledRows,
    Spans,
    TokenizedStimuli,
    pooled,
    tokenize,
)
from mlem_core.stimuli.stimulus_set import StimulusSet

if TYPE_CHECKING:
    import torch

# Of the numbers of the sentences of a batch: what they are run in.
During = Callable[[IntArray], AbstractContextManager[None]]


def untouched(batch: IntArray) -> AbstractContextManager[None]:
    """Context in which a model runs as it is."""
    return nullcontext()


STAGE = "representations"  # of the store
VERSION = 3  # counted up when the same inputs give other arrays
_FLOP_PER_BATCH = {"cpu": 5e10, "cuda": 5e12}  # well under a second: how soon a cancel is heard
_MAX_TOKENS = {"cpu": 4096, "cuda": 65536}  # more at a time makes no pass faster
_MAPPED = 64 * 2**20  # bytes written before the files are mapped anew


@dataclass(frozen=True)
class ExtractionOptions:
    """Options for taking hidden states from a model.

    Attributes
    ----------
    special_tokens : start and end tokens, see `mlem_core.representations.tokens.tokenize`
    pooling : what stands for a stimulus, see `mlem_core.representations.tokens.POOLINGS`
    dtype, device : see `mlem_core.representations.loading.open_model`; a model that is already
        open has its own
    layers : the numbers of those that are kept; None is all. The pass ends with the last of them
        where the model gives one layer after the other
    """

    special_tokens: str = "model"
    pooling: str = "standard"
    dtype: str = "float32"
    device: str = "auto"
    layers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_choice("choice of special tokens", self.special_tokens, SPECIAL_TOKENS)


STANDARD = ExtractionOptions()


def extract(
    stimuli: StimulusSet,
    loaded: LoadedModel,
    folder: Path,
    options: ExtractionOptions = STANDARD,
    progress: Counted | None = None,
) -> dict[str, Any]:
    """Write `layer_00.npy` ... (n_stimuli, n_units) float32 into `folder`; returns the facts.

    A model that has none of the layers of the options gives layer 0.

    Memory holds one batch, however many stimuli there are. In a causal model words with the same
    left context have one representation; batches would make it differ in its last bits, so it is
    stored once for all of them.

    Parameters
    ----------
    progress : called with (done, total) sentences before each forward pass and at the end

    Raises InputError: naming the row: a sentence that is too long or does not fit into memory, a
    word without a token, a state that is not finite.
    """
    report = progress or (lambda done, total: None)
    tokenized = tokenize(stimuli, loaded, options.special_tokens)
    every = range(loaded.n_layers + 1)
    layers = [n for n in every if options.layers is None or n in options.layers] or [0]
    files: _LayerFiles | None = None
    for rows, states in passes(tokenized, loaded, options.pooling, layers, report):
        if files is None:
            widths = {layer: state.shape[1] for layer, state in zip(layers, states, strict=True)}
            files = _LayerFiles(folder, len(stimuli), widths)
        for layer, state in zip(layers, states, strict=True):
            bad = ~np.isfinite(state).all(axis=1)
            if bad.any():
                raise InputError(
                    f"row {int(rows[bad].min()) + 1}: the model {loaded.name} gives NaN or "
                    f"infinity in layer {layer}."
                )
        files.write(rows, states)
    assert files is not None  # a stimulus set is never empty
    if loaded.causal:
        files.repeat(_first_of_context(tokenized))
    report(len(tokenized.tokens), len(tokenized.tokens))
    facts = _facts(stimuli, tokenized, loaded, options, files.widths)
    return facts if len(layers) == len(every) else {**facts, "kept": layers, "n_layers": len(every)}


def _facts(
    stimuli: StimulusSet,
    tokenized: TokenizedStimuli,
    loaded: LoadedModel,
    options: ExtractionOptions,
    widths: list[int],
) -> dict[str, Any]:
    """The manifest's entries about hidden states; `widths` are the n_units of the layers."""
    import torch
    import transformers

    choice = SPECIAL_TOKENS[options.special_tokens]
    start, end = tokenized.special
    return {
        "weights": loaded.identity,
        "revision": loaded.revision,
        "note": loaded.note,
        "architecture": type(loaded.model).__name__,
        "causal": loaded.causal,
        "units": widths,
        "dtype": loaded.dtype,
        "pooling": pooled(stimuli.level, options.pooling).label,
        "special_tokens": {"choice": choice, "start": start, "end": end},
        "unknown_words": tokenized.n_unknown,
        "max_tokens": loaded.max_tokens,
        "device": loaded.device,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "kernels": forward.fast_kernels(loaded.model),
    }


def passes(
    tokenized: TokenizedStimuli,
    loaded: LoadedModel,
    pooling: str,
    layers: Sequence[int],
    report: Counted = lambda done, total: None,
    during: During = untouched,
) -> Iterator[tuple[IntArray, list[NDArray[np.float32]]]]:
    """The stimuli (rows) of one batch after another, and their arrays in the layers to be kept.

    Once a batch does not fit into memory, batches have at most half as many sentences. A batch of
    sentences is run in what `during` gives of it.
    """
    import torch

    total = most = len(tokenized.tokens)
    done = 0
    waiting = _plan(tokenized, loaded)[::-1]
    while waiting:
        report(done, total)
        batch = waiting.pop()
        if len(batch) > most:
            waiting.append(batch[most:])
            batch = batch[:most]
        rows, spans = _spans(tokenized, batch, pooling)
        inputs = torch.from_numpy(_inputs(tokenized, batch))
        row = tokenized.stimuli[batch[0]][0] + 1
        cannot = f"row {row}: the model {loaded.name!r} cannot be run on the sentence"
        with errors_as_sentence(cannot), during(batch):
            arrays = _pooled_layers(loaded, inputs, spans, layers)
        if arrays is not None:
            yield rows, arrays
            done += len(batch)
            continue
        # Only here, where nothing of a failed pass is held any more, can its memory be freed.
        if loaded.device != "cpu":
            torch.cuda.empty_cache()
        if len(batch) == 1:
            raise InputError(
                f"row {row}: the sentence does not fit into the memory of {loaded.device} "
                f"beside the model {loaded.name}."
            )
        # Whatever is still to come and as large would not fit either.
        waiting.append(batch)
        most = len(batch) // 2


def _pooled_layers(
    loaded: LoadedModel, inputs: torch.Tensor, spans: Spans, layers: Sequence[int]
) -> list[NDArray[np.float32]] | None:
    """The rows of the stimuli of a batch in each layer; None where it does not fit into memory."""
    try:
        rows = PooledRows(spans, inputs.shape[1], loaded.device)
        forward.each_layer(loaded, inputs.to(loaded.device), rows.take, layers)
        return rows.arrays()
    except RuntimeError as error:
        if not _is_memory_error(error):
            raise
        return None


def batches(lengths: NDArray[np.integer], max_tokens: int) -> list[IntArray]:
    """Group equally long inputs, longest first.

    Parameters
    ----------
    lengths : (n_inputs,) tokens of each input.
    max_tokens : tokens a batch may have in all; a batch has at least one input.

    Returns indices into `lengths`, each in exactly one batch.
    """
    order = np.argsort(-lengths, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1) if len(order) else []
    result: list[IntArray] = []
    for group in groups:
        size = max(1, max_tokens // max(1, int(lengths[group[0]])))
        result.extend(group[begin : begin + size] for begin in range(0, len(group), size))
    return result


def input_batches(stimuli: StimulusSet, loaded: LoadedModel) -> list[torch.Tensor]:
    """The inputs (n_sentences, n_tokens) of the forward passes that `extract` makes, in order."""
    import torch

    tokenized = tokenize(stimuli, loaded)
    plan = _plan(tokenized, loaded)
    return [torch.from_numpy(_inputs(tokenized, batch)).to(loaded.device) for batch in plan]


def _plan(tokenized: TokenizedStimuli, loaded: LoadedModel) -> list[IntArray]:
    kind = loaded.device.partition(":")[0]
    embedded = loaded.model.get_input_embeddings().weight.numel()
    weights = max(1, sum(p.numel() for p in loaded.model.parameters()) - embedded)
    budget = min(_MAX_TOKENS[kind], _FLOP_PER_BATCH[kind] / (2 * weights))
    return batches(tokenized.lengths, int(budget))


def _inputs(tokenized: TokenizedStimuli, batch: IntArray) -> IntArray:
    """(n_inputs, n_tokens) the tokens of a batch."""
    return np.stack([tokenized.tokens[sentence] for sentence in batch])


def _spans(tokenized: TokenizedStimuli, batch: IntArray, pooling: str) -> tuple[IntArray, Spans]:
    """The stimuli (rows) of a batch of sentences, and the tokens whose mean each is."""
    rows = np.concatenate([tokenized.stimuli[sentence] for sentence in batch])
    places = np.repeat(np.arange(len(batch)), [len(tokenized.stimuli[s]) for s in batch])
    first, last = pooled(tokenized.level, pooling).tokens(*tokenized.spans[rows].T)
    return rows, Spans(places, first, last)


def _first_of_context(tokenized: TokenizedStimuli) -> IntArray:
    """(n_stimuli,) the first stimulus with the same tokens up to and with its own."""
    first = np.arange(len(tokenized.spans))
    if tokenized.level == "sentence":
        return first
    seen: dict[bytes, int] = {}
    for ids, rows in zip(tokenized.tokens, tokenized.stimuli, strict=True):
        for row in rows:
            first[row] = seen.setdefault(ids[: tokenized.spans[row, 1] + 1].tobytes(), row)
    return first


def _is_memory_error(error: RuntimeError) -> bool:
    import torch

    # On the CPU it is a RuntimeError like any other, and in CUDA's libraries too.
    signs = ("not enough memory", "can't allocate memory", "out of memory", "ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError) or any(sign in str(error) for sign in signs)


def layer_file(folder: Path, layer: int) -> Path:
    """Path of the file that `extract` writes a layer to."""
    return folder / f"layer_{layer:02d}.npy"


class _LayerFiles:
    """One memory-mapped file (n_rows, n_units) float32 a layer, of zeros, filled row by row."""

    def __init__(self, folder: Path, n_rows: int, widths: Mapping[int, int]) -> None:
        self.widths = list(widths.values())
        self._paths = [layer_file(folder, layer) for layer in widths]
        for path, width in zip(self._paths, self.widths, strict=True):
            np.lib.format.open_memmap(path, "w+", dtype=np.float32, shape=(n_rows, width))
            if hasattr(os, "posix_fallocate"):
                # A full disk is an error here and a killed process once it is mapped.
                with path.open("rb+") as file:
                    os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        self._written = 0
        self._maps = self._map()

    def _map(self) -> list[Any]:
        return [np.load(path, mmap_mode="r+", allow_pickle=False) for path in self._paths]

    def write(self, rows: IntArray, values: list[NDArray[np.float32]]) -> None:
        """Write the rows of all layers."""
        for target, value in zip(self._maps, values, strict=True):
            target[rows] = value
            self._written += value.nbytes
        if self._written > _MAPPED:
            # Mapped pages count as ours until they are let go.
            self._maps, self._written = self._map(), 0

    def repeat(self, first: IntArray) -> None:
        """Make each row what the row `first` of it is."""
        rows = np.flatnonzero(first != np.arange(len(first)))
        for target in self._maps:
            target[rows] = target[first[rows]]
