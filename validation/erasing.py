"""How often erasing a feature claims effects that it has, and effects that it has not.

Networks of GPT-2's architecture read sentences that they have drawn themselves. A sign for each
word of the lexicon is *lacked* by the network (it has nothing to do with its states), *carried* (a
direction of the states has it, that no block and no output reads), *as any other* (blocks and
output read it as they read a random direction), or *used* (they read it more). A copy of mini-gpt2
is changed likewise.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import AnalysisSpec
from mlem_core.analysis.run import run
from mlem_core.base.typing import FloatArray
from mlem_core.data.datasets import load
from mlem_core.data.stimulus_csv import from_frame, write_csv
from mlem_core.inference.erased_measures import PREDICTIONS, REST, SURPRISAL
from mlem_core.models.loading import load_with_head, open_model
from mlem_core.models.tokens import tokenize
from mlem_core.robustness.erasure import erase, reach_of
from mlem_core.storage.store import Store
from validation.work import Row, Task

# Words of the lexicon, units, layers and weights of the small networks; sentences of so many words.
WORDS, WIDTH, LAYERS, WEIGHT, OUTPUT = 120, 16, 3, 0.5, 0.5
SENTENCES, LENGTH, ERASED_AT = 50, 4, 1
# Case, size of the sign in the states, how strongly it is read; data sets. Each part has so many.
CASES = {
    ("lacked", 0.0, 0.0): 400,
    ("carried", 1.0, 0.0): 140,
    ("carried", 2.0, 0.0): 140,
    ("carried", 4.0, 0.0): 140,
    ("as any other", 1.0, 1.0): 400,
    ("used", 2.0, 2.0): 60,
    ("used", 2.0, 4.0): 60,
    ("used", 2.0, 8.0): 60,
}
# Of copies of mini-gpt2; networks of each, which read so many rows of the probing set.
COPIES = (
    ("lacked", 0.0, 0.0),
    ("carried", 4.0, 0.0),
    ("used", 4.0, 12.0),
    ("used", 4.0, 40.0),
    ("used", 12.0, 40.0),
)
SEEDS, ROWS = 3, 800
PART = 10


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


def small_network(rng: np.random.Generator) -> Any:
    """A GPT-2 with random weights."""
    import torch
    import transformers

    config = transformers.GPT2Config(
        vocab_size=WORDS + 1, n_positions=LENGTH + 1, n_embd=WIDTH, n_layer=LAYERS, n_head=2,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "ln_" not in name and weight.ndim == 2:
                drawn = rng.standard_normal(tuple(weight.shape))
                weight.copy_(torch.tensor(drawn * (1.0 if "wte" in name else WEIGHT)).float())
        model.transformer.ln_f.weight *= OUTPUT
    return model


def sentences_of(model: Any, seed: int) -> list[list[int]]:
    """Words that the network draws after a first one, as numbers from 1."""
    import torch

    torch.manual_seed(seed)
    ids = torch.randint(1, WORDS + 1, (SENTENCES, 1))
    with torch.no_grad():
        for _ in range(LENGTH - 1):
            logits = model(ids).logits[:, -1]
            logits[:, 0] = -torch.inf
            ids = torch.cat((ids, torch.multinomial(logits.softmax(-1), 1)), dim=1)
    return ids.tolist()


def save(model: Any, folder: Path) -> None:
    """The network with a tokenizer of whole words."""
    import tokenizers
    import transformers

    model.save_pretrained(folder)
    vocabulary = {"[UNK]": 0} | {f"w{word}": word for word in range(1, WORDS + 1)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]"
    ).save_pretrained(folder)


def erased(table: pd.DataFrame, folder: Path, layer: int, models: tuple[str, ...] = ()) -> Row:
    """The largest changes of later layers and predictions, and whether they are claimed."""
    write_csv(from_frame(table, "study"), folder / "study.csv")
    store = Store(folder / "store")
    spec = AnalysisSpec(
        stimuli=str(folder / "study.csv"), models=models or (str(folder),), layers=(layer,),
        estimator="ridge", values=(),
    )  # fmt: skip
    analysis = run(spec, store, progress=False)
    result = erase(analysis, "sign", (spec.models[0], layer), store)
    claims = result.table[result.table["measure"].isin((REST, *PREDICTIONS))]
    change = (claims["after"] - claims["before"]).to_numpy()
    every = np.ones(len(claims), dtype=bool)
    row: Row = {"claimed": bool(claims["beyond"].any())}
    for kind, draws in zip(("labels", "subspaces"), result.controls, strict=True):
        reach = reach_of(np.vstack((change, draws[:, claims.index])), every)
        row[f"beyond {kind}"] = bool((np.abs(change) > reach).any())
    outside = ~claims["interchanged"].between(claims["control_lower"], claims["control_upper"])
    row["interchanged"] = bool(outside.any())
    for measure in (REST, SURPRISAL):
        last = claims[claims["measure"] == measure].iloc[-1]
        row |= {f"{measure} {end}": float(last[end]) for end in ENDS}
    return row


SHARES = {
    "claimed": "claimed",
    "beyond labels": "beyond permuted labels",
    "beyond subspaces": "beyond subspaces",
    "interchanged": "interchanged beyond",
}
ENDS = ("before", "after", "control_lower", "control_upper", "interchanged")


def part(case: str, carried: float, read: float, first: int, count: int) -> list[Row]:
    """The sign erased in some data sets, each with a network of its own."""
    rows = []
    for seed in range(first, first + count):
        rng = np.random.default_rng([seed, 52])
        signs = np.where(rng.permutation(WORDS + 1) % 2, 1.0, -1.0)
        model = small_network(rng)
        if case != "lacked":
            plant(model, signs, rng, carried, read, ERASED_AT)
        table = pd.DataFrame(
            [
                (" ".join(f"w{word}" for word in words), place, signs[word])
                for words in sentences_of(model, seed)
                for place, word in enumerate(words)
            ],
            columns=["sentence", "word_index", "sign"],
        )
        table["sign"] = np.where(table["sign"] > 0, "plus", "minus")
        with tempfile.TemporaryDirectory() as folder:
            save(model, Path(folder))
            row = erased(table, Path(folder), ERASED_AT)
        rows.append({"case": case, "carried": carried, "read": read, "seed": seed} | row)
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
    copies = [
        Task(f"mini-gpt2 {case} {carried:g} {read:g}, {seed}", trained, (case, carried, read, seed))
        for case, carried, read in (COPIES[:1] if quick else COPIES)
        for seed in range(1 if quick else SEEDS)
    ]
    return copies + [
        Task(f"{case} {carried:g} {read:g}, from {first}", part, (case, carried, read, first, PART))
        for (case, carried, read), count in CASES.items()
        for first in range(0, PART if quick else count, PART)
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
        change = cells[f"{measure} after"].mean() - cells[f"{measure} before"].mean()
        columns[f"change of {measure}"] = change.map("{:+.3f}".format)
    return {"erasing": pd.DataFrame(columns)}
