"""How often erasing a feature claims effects that it has, and effects that it has not.

Small networks read words that they have drawn themselves. A sign for each word of the lexicon is
*lacked* by the network (it has nothing to do with its states), *carried* (a unit of the states has
it, that no block and no output reads), *as any other* (blocks and output read it as they read any
other unit), or *used* (they read it more). Copies of mini-gpt2 are changed likewise.
"""

from __future__ import annotations

import tempfile
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import AnalysisSpec
from mlem_core.analysis.run import run
from mlem_core.base.typing import FloatArray
from mlem_core.extensions.erasure.measures import (
    PREDICTIONS,
    REST,
    SURPRISAL,
    Concept,
    ErasedRuns,
    fold_ranks,
    held_out_rsa,
)
from mlem_core.extensions.erasure.stage import DRAWS, control_reach, erase, matched_subspaces
from mlem_core.representations.loading import load_with_head, open_model
from mlem_core.representations.tokens import tokenize
from mlem_core.stimuli.datasets import load
from mlem_core.stimuli.stimulus_csv import from_frame, write_csv
from mlem_core.storage.store import Store
from validation.work import Row, Task

# Words of the lexicon, stimuli, units of a small network and of its blocks, number of blocks.
WORDS, STIMULI, WIDTH, HIDDEN, BLOCKS, FOLDS = 120, 200, 16, 32, 2, 2
# Case, size of the sign in the states, how strongly it is read; data sets. Each part has so many.
CASES = {
    ("lacked", 0.0, 0.0): 400,
    ("carried", 1.0, 0.0): 140,
    ("carried", 2.0, 0.0): 140,
    ("carried", 4.0, 0.0): 140,
    ("as any other", 1.0, 1.0): 400,
    ("used", 2.0, 1.5): 100,
    ("used", 2.0, 2.0): 100,
    ("used", 2.0, 4.0): 100,
}
# Of copies of mini-gpt2; networks of each, which read so many rows of the probing set.
COPIES = (
    ("lacked", 0.0, 0.0),
    ("carried", 4.0, 0.0),
    ("used", 4.0, 12.0),
    ("used", 4.0, 40.0),
    ("used", 12.0, 40.0),
)
SEEDS, ROWS = 2, 800
PART = 20


class SmallNetwork(ErasedRuns):
    """Blocks with random weights that follow the erased layer, in the place of a model.

    A state is that of its word and of the word before, and its first unit has the sign. Each block
    adds what a hidden layer makes of the normed state; the first unit is only read.
    """

    @classmethod
    def draw(cls, signs: Any, carried: float, read: float, rng: np.random.Generator) -> Any:
        """A network, and stimuli that it has drawn; see `plant` of the sizes.

        Parameters
        ----------
        signs : (WORDS,) 1 or -1
        """
        words, folds = rng.integers(WORDS, size=STIMULI), np.arange(STIMULI) % FOLDS
        analysis = SimpleNamespace(folds=folds, stimuli=range(STIMULI))
        layers = tuple(range(1 + BLOCKS))
        network = cls(analysis, "", None, None, layers, np.arange(STIMULI), None, "all", {})  # type: ignore[arg-type]
        lexicon = rng.standard_normal((WORDS, WIDTH))
        states = lexicon[words] + 0.5 * np.roll(lexicon[words], 1, axis=1)[rng.permutation(STIMULI)]
        states[:, 0] = carried * signs[words]
        readers = rng.standard_normal((BLOCKS, WIDTH, HIDDEN)) / np.sqrt(WIDTH)
        writers = rng.standard_normal((BLOCKS, HIDDEN, WIDTH)) / np.sqrt(HIDDEN)
        output = rng.standard_normal((WIDTH, WORDS))
        readers[:, 0] *= read
        output[0] *= read
        writers[:, :, 0] = 0.0
        network.__dict__.update(words=words, first=states, matrices=(readers, 2 * writers))
        network.__dict__["output"] = output
        logits = network.logits(network.original_states[-1])
        network.__dict__["next"] = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        return network

    @cached_property
    def original_states(self) -> list[FloatArray]:
        return self.read(self.first)

    def read(self, states: FloatArray) -> list[FloatArray]:
        """The states, and those after each block."""
        layers = [states]
        for reader, writer in zip(*self.matrices, strict=True):
            states = states + np.tanh(normed(states) @ reader) @ writer
            layers.append(states)
        return layers

    def logits(self, states: FloatArray) -> FloatArray:
        """(n_stimuli, WORDS) of the next word, in the last layer."""
        return normed(states) @ self.output

    def states(self, erasers: Any, shifts: FloatArray) -> list[FloatArray]:
        states = np.empty_like(self.first)
        for fold, eraser in enumerate(erasers):
            rows = self.analysis.folds == fold
            at = shifts[rows, : len(eraser.right)]
            states[rows] = eraser(self.first[rows]) + at @ eraser.left.T
        return self.read(states)

    def surprisal(self, states: FloatArray) -> float:
        """Mean surprisal of the next words, in bits."""
        logits = self.logits(states)
        totals = np.log(np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1))
        own = (logits - logits.max(axis=1, keepdims=True))[np.arange(STIMULI), self.next]
        return float((totals - own).mean() / np.log(2))

    def measures(self, concept: Concept) -> FloatArray:
        """RSA of each later layer with itself before, the concept erased from both; surprisal."""
        erasers = self.erasers(self.original_states[0], concept)
        states = self.states(erasers, self.shifts(erasers, concept))

        def ranks(layer: FloatArray) -> list[FloatArray]:
            return fold_ranks(layer.astype(np.float32), self.analysis.folds, "euclidean")

        rest = [
            held_out_rsa(*(ranks(layer) for layer in pair))
            for pair in self.without(states, concept)
        ]
        return np.append(np.ravel(rest), self.surprisal(states[-1]))


def normed(states: FloatArray) -> FloatArray:
    """States (n, n_units) whose root mean square is 1."""
    return states / np.sqrt((states**2).mean(axis=1, keepdims=True))


def plant(
    model: Any,
    signs: FloatArray,
    rng: np.random.Generator,
    carried: float,
    read: float,
    layer: int,
) -> None:
    """Puts a sign of each token into the states of a GPT-2, along a random direction.

    Parameters
    ----------
    signs : (n_tokens,) 1 or -1
    carried : its size, in units of the root mean square of the embedding along a direction
    read : how strongly blocks and output read it, in units of how they read a random direction
    layer : blocks before it do not
    """
    import torch

    body, width = model.transformer, model.config.n_embd
    direction = rng.standard_normal(width)
    direction -= direction.mean()
    u = torch.tensor(direction / np.linalg.norm(direction)).float()

    def set_reading(weight: Any, scale: Any, strength: float) -> None:
        """Sets what a weight (n_units, n_outputs), after a norm's scale, reads along u."""
        typical = (scale[:, None] * weight).pow(2).mean().sqrt()
        wanted = strength * typical * torch.tensor(rng.standard_normal(weight.shape[1])).float()
        weight += torch.outer(u, (wanted - (scale * u) @ weight) / (u * scale * u).sum())

    with torch.no_grad():
        embedding = body.wte.weight
        head = embedding.detach().T.clone(memory_format=torch.contiguous_format)
        typical = embedding.pow(2).mean().sqrt()
        for table in (embedding, body.wpe.weight):
            table -= torch.outer(table @ u, u)
        embedding += carried * typical * torch.outer(torch.tensor(signs).float(), u)
        for number, block in enumerate(body.h):
            strength = read if number >= layer else 0.0
            set_reading(block.attn.c_attn.weight, block.ln_1.weight, strength)
            set_reading(block.mlp.c_fc.weight, block.ln_2.weight, strength)
            for output in (block.attn.c_proj, block.mlp.c_proj):
                output.weight -= torch.outer(output.weight @ u, u)
                output.bias -= (output.bias @ u) * u
        model.config.tie_word_embeddings = False
        set_reading(head, body.ln_f.weight, read)
        model.lm_head.weight = torch.nn.Parameter(head.T.contiguous())


def erased(table: pd.DataFrame, folder: Path, layer: int) -> Row:
    """The largest changes of later layers and predictions, and whether they are claimed."""
    write_csv(from_frame(table, "study"), folder / "study.csv")
    store = Store(folder / "store")
    spec = AnalysisSpec(
        stimuli=str(folder / "study.csv"), models=(str(folder),), layers=(layer,),
        estimator="ridge", values=(),
    )  # fmt: skip
    analysis = run(spec, store, progress=False)
    result = erase(analysis, "sign", (str(folder), layer), store)
    table = result.table[result.table["measure"].isin((REST, *PREDICTIONS))]
    was, after, interchanged = table[["before", "after", "interchanged"]].to_numpy().T
    reaches, every = [], np.ones(len(table), dtype=bool)
    for draws in result.controls[..., table.index]:
        reaches.append(control_reach(np.vstack((after - was, draws)), every))
    row = claims(after - was, interchanged - was, np.array(reaches))
    for measure in (REST, SURPRISAL):
        at = np.flatnonzero(table["measure"] == measure)[-1]
        row |= sizes(measure, was[at], after[at] - was[at], np.max(reaches, axis=0)[at])
    return row


def claims(change: FloatArray, interchanged: FloatArray, reaches: FloatArray) -> Row:
    """Whether any measure is beyond labels, subspaces, both, and interchanged, too.

    Parameters
    ----------
    change, interchanged : (n_measures,)
    reaches : (2, n_measures) of permuted labels and of subspaces
    """
    is_beyond = np.abs(change) > reaches
    swapped = np.abs(interchanged) > reaches.max(axis=0)
    return {
        "labels": bool(is_beyond[0].any()),
        "subspaces": bool(is_beyond[1].any()),
        "both": bool(is_beyond.all(axis=0).any()),
        "claimed": bool((is_beyond.all(axis=0) & swapped).any()),
    }


def sizes(name: str, before: float, change: float, reach: float) -> Row:
    """A measure before, its change, and the reach of controls."""
    return {f"{name} before": before, f"{name} change": change, f"{name} reach": reach}


SHARES = {
    "labels": "beyond permuted labels",
    "subspaces": "beyond subspaces",
    "both": "beyond both",
    "claimed": "interchanged, too: claimed",
}


def part(case: str, carried: float, read: float, first: int, count: int) -> list[Row]:
    """The sign erased in some data sets, each with a network of its own."""
    rows = []
    for seed in range(first, first + count):
        rng = np.random.default_rng([seed, 52])
        signs = rng.permutation(np.resize([1.0, -1.0], WORDS))
        network = SmallNetwork.draw(signs, carried, read, rng)

        def concept(labels: FloatArray, network: Any = network) -> Concept:
            return Concept.from_values(np.where(labels[network.words] > 0, "plus", "minus"), "zero")

        sign, states = concept(signs), network.original_states[0]
        was = np.append(np.ones(BLOCKS), network.surprisal(network.original_states[-1]))
        change = network.measures(sign) - was
        labels = [concept(rng.permutation(signs)) for _ in range(DRAWS)]
        everyone = np.ones(STIMULI, dtype=bool)
        subspaces = [
            Concept(columns, everyone)
            for columns in matched_subspaces(states, sign.eraser(states), DRAWS, rng)
        ]
        reaches = []
        for controls in (labels, subspaces):
            spared = [control._replace(spared=sign.columns) for control in controls]
            draws = [network.measures(control) - was for control in spared]
            reaches.append(control_reach(np.stack((change, *draws)), np.ones(len(was), dtype=bool)))
        interchanged = network.measures(sign.interchanged(rng)) - was
        rows.append(
            {"case": case, "carried": carried, "read": read, "seed": seed}
            | claims(change, interchanged, np.array(reaches))
            | sizes(REST, was[-2], change[-2], np.max(reaches, axis=0)[-2])
            | sizes(SURPRISAL, was[-1], change[-1], np.max(reaches, axis=0)[-1])
        )
    return rows


def trained(case: str, carried: float, read: float, seed: int) -> list[Row]:
    """The sign erased from layer 2 of a copy of mini-gpt2, which reads the probing set."""
    rng = np.random.default_rng([seed, 53])
    loaded = open_model("mini-gpt2", "cpu")
    model, stimuli = load_with_head(loaded), load("probing")
    tokens = tokenize(stimuli, loaded)
    signs = rng.choice([-1.0, 1.0], model.config.vocab_size)
    ends = np.zeros(len(stimuli))
    for rows, ids in zip(tokens.stimuli, tokens.tokens, strict=True):
        ends[rows] = signs[ids[tokens.spans[rows, 1]]]
    if case != "lacked":
        plant(model, signs, rng, carried, read, 2)
    table = stimuli.table[["sentence", "word_index", "part_of_speech"]]
    table = table.assign(sign=np.where(ends > 0, "plus", "minus"))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded.tokenizer.save_pretrained(folder)
        row = erased(table.iloc[:ROWS], Path(folder), 2)
    return [{"case": f"mini-gpt2, {case}", "carried": carried, "read": read, "seed": seed} | row]


def tasks(quick: bool) -> list[Task]:
    """The study in parts."""
    small = [
        Task(f"{case} {carried:g} {read:g}, from {first}", part, (case, carried, read, first, PART))
        for (case, carried, read), count in CASES.items()
        for first in range(0, PART if quick else count, PART)
    ]
    return small + [
        Task(f"mini-gpt2 {case} {carried:g} {read:g}, {seed}", trained, (case, carried, read, seed))
        for case, carried, read in (COPIES[:1] if quick else COPIES)
        for seed in range(1 if quick else SEEDS)
    ]


def of_cases(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """How often effects are claimed, and how large they are."""
    cells = rows.groupby(["case", "carried", "read"], sort=False)
    columns = {"data sets": cells.size()}
    for name, title in SHARES.items():
        share = cells[name].mean()
        error = np.sqrt(share * (1 - share) / cells.size())
        columns[title] = share.map("{:.1%}".format) + error.map(" ± {:.1%}".format)
    for measure in (REST, SURPRISAL):
        change = cells[f"{measure} change"].mean()
        reach = cells[f"{measure} reach"].mean()
        columns[f"{measure}: change (reach)"] = change.map("{:+.3f}".format) + reach.map(
            " ({:.3f})".format
        )
    return {"erasing": pd.DataFrame(columns)}
