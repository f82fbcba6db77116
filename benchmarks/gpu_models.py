"""For `benchmarks.gpu`: extraction over bare passes, and Mamba's kernels over the plain path.

`python -m benchmarks.gpu_models MODEL DEVICE N_SENTENCES RUNS FILE kernels|plain` is one path of
Mamba in a process of its own, since transformers chooses it when it is imported: it writes the
hidden states and prints the seconds of the forward passes.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import routes
from benchmarks.device import NO_GPU, Device
from benchmarks.timing import Table, in_turn, printed_numbers, seconds
from mlem_core.base.errors import InputError
from mlem_core.representations import forward
from mlem_core.representations.extraction import extract, input_batches, layer_file
from mlem_core.representations.forward import LoadedModel
from mlem_core.representations.loading import DTYPES, open_model
from mlem_core.representations.registry import MODELS, ModelUnavailable, locate
from mlem_core.representations.tokens import tokenize
from mlem_core.stimuli import datasets
from mlem_core.stimuli.stimulus_set import StimulusSet

SET = "relative-clauses"
THROUGHPUT = "at least 0.9"
# Of the largest number of a layer, what two orders of summation differ by in float32.
CLOSE = "at most 1e-4"
KERNELS = ("mamba_ssm", "causal_conv1d")
ALONE = 20  # sentences that are given to the CPU one at a time
# Published architectures: the type of transformers, and where its configuration is another one.
ARCHITECTURES: dict[str, tuple[str, dict[str, int]]] = {
    "minilm": (
        "bert",
        {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536},
    ),
    "smollm2": (
        "llama",
        {
            "vocab_size": 49_152,
            "hidden_size": 576,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "intermediate_size": 1536,
        },
    ),
    "bert-base-uncased": ("bert", {}),
    "gpt2": ("gpt2", {}),
    "state-spaces/mamba-130m-hf": ("mamba", {"num_hidden_layers": 24}),
}


def sentences(n: int) -> StimulusSet:
    """Sentences of the relative-clause set, spread over all of it."""
    stimuli = datasets.load(SET)
    return stimuli.take(np.linspace(0, len(stimuli) - 1, min(n, len(stimuli))).astype(np.int64))


def openable(name: str, folder: Path) -> tuple[str, str]:
    """What rows call a model, and the name that opens it.

    A model that cannot be had is replaced by its architecture with random weights, written into
    a folder, and the tokenizer of a small model: throughput and agreement need no more.
    """
    try:
        locate(name)
    except ModelUnavailable:
        return f"{name} with random weights", _random_twin(name, folder)
    return name, name


def _random_twin(name: str, folder: Path) -> str:
    import torch
    from transformers import AutoConfig, AutoModel

    kind, options = ARCHITECTURES[name]
    # The name stays in the path: `_reference` looks for Mamba there.
    twin = folder / name.replace("/", "-")
    torch.manual_seed(0)
    AutoModel.from_config(AutoConfig.for_model(kind, **options)).save_pretrained(twin)
    tokenizer_of = MODELS["mini-bert" if kind == "bert" else "mini-gpt2"].path()
    assert tokenizer_of is not None
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer_of / file, twin)
    return str(twin)


def rows_of(stimuli: StimulusSet, loaded: LoadedModel) -> list[NDArray[np.float32]]:
    """What `extract` gives of each layer."""
    with tempfile.TemporaryDirectory() as folder:
        extract(stimuli, loaded, Path(folder))
        return [np.load(layer_file(Path(folder), k)) for k in range(loaded.n_layers + 1)]


def rows_alone(stimuli: StimulusSet, loaded: LoadedModel) -> list[NDArray[np.float64]]:
    """The same from one whole forward pass a sentence, and the mean over its tokens."""
    import torch

    found: list[list[NDArray[np.float64]]] = [[] for _ in range(loaded.n_layers + 1)]
    tokenized = tokenize(stimuli, loaded)
    sentence = np.empty(len(stimuli), dtype=np.int64)
    for number, rows in enumerate(tokenized.stimuli):
        sentence[rows] = number
    for row, number in enumerate(sentence):
        ids = torch.from_numpy(tokenized.tokens[number])[None].to(loaded.device)
        first, last = tokenized.spans[row]
        states = forward.hidden_states(loaded.model, loaded.n_layers, ids)
        for layer, state in zip(found, states, strict=True):
            layer.append(state[0, first : last + 1].double().mean(dim=0).cpu().numpy())
    return [np.stack(layer) for layer in found]


def difference(
    ours: Sequence[NDArray[np.floating]], theirs: Sequence[NDArray[np.floating]]
) -> float:
    """The largest of two models' layers, as a share of the largest number of the layer."""
    return max(
        float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(ours, theirs, strict=True)
    )


def extraction(table: Table, device: Device, name: str, n_sentences: int, runs: int) -> None:
    """A model in each type of numbers: agreement, and the share of throughput."""
    if not (MODELS[name].package or device.is_gpu):
        table.add(f"extraction, {name}", "skipped", f"{NO_GPU}; it is fetched where there is one")
        return
    with tempfile.TemporaryDirectory() as folder:
        _extraction(table, device, openable(name, Path(folder)), n_sentences, runs)


def _extraction(
    table: Table, device: Device, model: tuple[str, str], n_sentences: int, runs: int
) -> None:
    label, name = model
    stimuli = sentences(n_sentences)
    few = stimuli.take(np.arange(min(ALONE, len(stimuli))))
    try:
        alone, where = _reference(few, name, device)
    except InputError as error:
        table.add(f"extraction, {label}", "skipped", str(error))
        return
    for dtype in DTYPES:
        what, loaded = f"extraction, {label}, {dtype}", open_model(name, device.name, dtype)
        off = difference(rows_of(few, loaded), alone)
        table.add(
            f"{what}: largest difference from single sentences on the {where} in float32",
            f"{off:.1e} of the largest number of a layer",
            target=CLOSE if dtype == "float32" else "",
        )
        if device.is_gpu:
            _throughput(table, device, what, (stimuli, loaded), runs)
        else:
            table.add(f"{what}: throughput over bare passes", "skipped", NO_GPU, "", THROUGHPUT)


def _reference(
    few: StimulusSet, name: str, device: Device
) -> tuple[list[NDArray[np.float64]], str]:
    """`rows_alone` on the CPU, or on the device where the model's kernels run there only."""
    if device.is_gpu and installed_kernels() and "mamba" in name:
        return rows_alone(few, open_model(name, device.name)), "GPU"
    return rows_alone(few, open_model(name, "cpu")), "CPU"


def _throughput(
    table: Table, device: Device, what: str, given: tuple[StimulusSet, LoadedModel], runs: int
) -> None:
    stimuli, loaded = given
    inputs = input_batches(stimuli, loaded)
    bare = device.done(lambda: routes.forward(loaded, inputs))
    bare()
    _, peak = device.timed(lambda: routes.extraction(stimuli, loaded))
    ours, theirs = in_turn(lambda: routes.extraction(stimuli, loaded), bare, runs)
    n_tokens = sum(ids.numel() for ids in inputs)
    table.add(
        f"{what}: throughput over bare passes",
        f"{n_tokens / ours:,.0f} tokens/s",
        f"{n_tokens / theirs:,.0f} tokens/s",
        f"{theirs / ours:.2f}",
        THROUGHPUT,
    )
    table.add(f"{what}: peak memory", f"{peak:.2f} GB")


def installed_kernels() -> dict[str, str]:
    """The packages of `KERNELS` that are installed, with their versions."""
    versions = {}
    for package in ("mamba-ssm", "causal-conv1d"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def kernels(table: Table, device: Device, name: str, n_sentences: int, runs: int) -> None:
    """mamba-ssm and causal-conv1d against transformers' plain path: states, and times faster."""
    installed = installed_kernels()
    what = f"mamba-ssm and causal-conv1d over the plain path, {name}"
    if len(installed) < len(KERNELS) or not device.is_gpu:
        here = f"only {', '.join(installed)}" if installed else "neither"
        table.add(what, "skipped", f"{here} is installed" if device.is_gpu else NO_GPU)
        return
    try:
        for package in KERNELS:
            importlib.import_module(package)
    except Exception as error:  # transformers takes the plain path then, and says nothing
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        table.add(what, "skipped", f"installed, but no import: {reason}")
        return
    with tempfile.TemporaryDirectory() as folder:
        label, source = openable(name, Path(folder))
        off, ours, plain = paths(source, device.name, n_sentences, runs)
    what = f"mamba-ssm and causal-conv1d over the plain path, {label}"
    table.add(
        f"{what}: largest difference of states",
        f"{off:.1e} of the largest number of a layer",
        target=CLOSE,
    )
    table.add(f"{what}: seconds", f"{ours:.2f} s", f"{plain:.2f} s", f"{plain / ours:.1f}")


def paths(name: str, device: str, n_sentences: int, runs: int) -> tuple[float, float, float]:
    """The difference of the states of Mamba's two paths, and the seconds of each."""
    with tempfile.TemporaryDirectory() as folder:
        took, states = [], []
        for path in ("kernels", "plain"):
            file = Path(folder) / f"{path}.npz"
            given = (name, device, n_sentences, runs, file, path)
            took += printed_numbers("benchmarks.gpu_models", *given)
            with np.load(file) as saved:
                states.append([saved[key] for key in sorted(saved)])
    return difference(*states), took[0], took[1]


def main(name: str, device: str, n_sentences: int, runs: int, file: str, path: str) -> None:
    """One path: the states into a file, the seconds printed."""
    if path == "plain":
        for package in KERNELS:
            # What an import finds here is no package.
            sys.modules[package] = None  # type: ignore[assignment]
    stimuli, on = sentences(n_sentences), Device(device)
    loaded = open_model(name, device)
    rows = rows_of(stimuli, loaded)
    np.savez(file, **{f"layer_{k:03d}": row for k, row in enumerate(rows)})  # type: ignore[arg-type]
    inputs = input_batches(stimuli, loaded)
    bare = on.done(lambda: routes.forward(loaded, inputs))
    print(min(seconds(bare) for _ in range(runs)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], sys.argv[6])
