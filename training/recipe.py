"""The whole recipe, at two sizes: text, tokenizer, training, evaluation of what is shipped."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from training import evaluate
from training.cards import TRIED, card, table
from training.networks import NAMES, Shape, build, embeddings, for_training
from training.pairs import Pair, pairs
from training.text import PARTS, SOURCES, Text, load
from training.train import Plan, pack, train
from training.vocabulary import fit, wrap

DEV_ROWS = 96  # of the development text, for the curves


@dataclass(frozen=True)
class Size:
    """What is made from what: the networks, the text, and how long each is trained."""

    shape: Shape
    plans: dict[str, Plan]
    # What a model is trained on after its plan, and how: the plan, and the sources of the text.
    finish: dict[str, tuple[Plan, tuple[str, ...]]] = field(default_factory=dict)
    sources: tuple[str, ...] = SOURCES
    share: float = 1.0
    masked_tokens: int = 4000  # how many held-out tokens the masked model is asked for
    pairs: int = 300
    tried: dict[str, str] = field(default_factory=dict)  # what was done about missed goals


# A masked model has to find out which tokens are neighbours before it beats a unigram model; in
# rows of 16 tokens this takes a third of the steps that it takes in rows of 128.
_SHORT = ((0.12, 16), (0.2, 32))
SIZES = {
    "full": Size(
        Shape(),
        {
            "mini-bert": Plan(steps=9000, short=_SHORT),
            "mini-gpt2": Plan(steps=6500),
            "mini-mamba": Plan(steps=6500),
        },
        finish={
            "mini-bert": (
                Plan(steps=3000, rate=1.2e-3, mask_share=0.2, seed=1),
                ("stories", "examples"),
            )
        },
        tried=TRIED,
    ),
    "tiny": Size(
        Shape(vocabulary=1024, width=64, layers=2, mamba_layers=4, heads=2, longest=64),
        {
            "mini-bert": Plan(steps=600, rows=16, short=_SHORT),
            "mini-gpt2": Plan(steps=300, rows=16),
            "mini-mamba": Plan(steps=300, rows=16),
        },
        sources=("stories",),
        masked_tokens=500,
        pairs=60,
    ),
}


def run(size: Size, folder: Path, names: Sequence[str] = NAMES) -> dict[str, dict[str, Any]]:
    """Make the models of a size in `folder`, and measure them.

    `folder/<name>` has the checkpoint and the curve, `folder/models/<name>` the model as it is
    shipped with its card, `folder/results.json` and `results.md` what was measured, and
    `folder/pairs.csv` the minimal pairs. Returns the results by model.
    """
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    text = load(folder / "debian", size.sources, size.share)
    tokenizer = _tokenizer(folder / "tokenizer.json", text, size.shape.vocabulary)
    groups, held = (_encode(tokenizer, part) for part in (text.train, text.dev))
    words = sum(len(document.split()) for document in text.documents("train"))
    rows = pack(held, size.shape.longest, np.random.default_rng(0))
    chosen = pairs(text.documents("train"), size.pairs)
    trained, dev, test = (text.documents(part) for part in PARTS)
    trigrams = evaluate.baselines(trained, dev, test, tokenizer)
    results = {}
    if (folder / "results.json").is_file():  # of the other models, from an earlier run
        results = json.loads((folder / "results.json").read_text())
    for name in names:
        plan = size.plans[name]
        model = train(name, size.shape, plan, groups, rows[:DEV_ROWS], folder / name)
        steps = plan.steps
        if name in size.finish:
            finish, sources = size.finish[name]
            some = _encode(tokenizer, {source: text.train[source] for source in sources})
            place = folder / f"{name}-finish"
            model = train(name, size.shape, finish, some, rows[:DEV_ROWS], place, model)
            steps += finish.steps
        place = folder / "models" / name
        _save(name, model, tokenizer, size.shape.longest, place)
        results[name] = {
            "layers": size.shape.mamba_layers if name == "mini-mamba" else size.shape.layers,
            "width": size.shape.width,
            "parameters": sum(p.numel() for p in model.parameters()),
            "without_embeddings": sum(p.numel() for p in model.parameters()) - embeddings(model),
            "words": words,
            "steps": steps,
            "tokens_per_step": plan.rows * size.shape.longest,
            "tokens": steps * plan.rows * size.shape.longest,
            "longest": size.shape.longest,
            "input": "<s> sentence </s>" if name == "mini-bert" else "<s> sentence",
            "note": _note(name, plan, size.finish.get(name)),
            **measure(name, place, size, text, tokenizer, chosen, trigrams),
        }  # fmt: skip
        (place / "README.md").write_text(card(name, results[name], size.tried.get(name, "")))
    results = {name: results[name] for name in NAMES if name in results}
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / "results.md").write_text(table(results))
    with (folder / "pairs.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([Pair._fields, *chosen])
    print(table(results), flush=True)
    return results


def measure(
    name: str,
    place: Path,
    size: Size,
    text: Text,
    tokenizer: Any,
    chosen: Sequence[Pair],
    trigrams: dict[str, float],
) -> dict[str, Any]:
    """Bits on the test text, those of the baselines, and the minimal pairs, for a saved model."""
    model = reopen(name, place, size.shape)
    train_text, test = text.documents("train"), text.documents("test")
    ids = evaluate.stream([e.ids for e in tokenizer.encode_batch(test)])
    found = evaluate.prefer(model, tokenizer, chosen)
    if name == "mini-bert":
        documents = [e.ids for e in tokenizer.encode_batch(train_text)]
        unigram = evaluate.unigrams(documents, size.shape.vocabulary)
        bits, baseline = evaluate.masked_bits(
            model, ids, size.shape.longest, unigram, size.masked_tokens
        )
        return {
            "unit": "masked token",
            "bits": bits,
            "baselines": {"unigram model": baseline},
            "pairs": found,
        }
    n_words = sum(len(evaluate.split(tokenizer, document)) + 1 for document in test)
    return {
        "unit": "word",
        "bits": evaluate.causal_bits(model, ids, size.shape.longest) / n_words,
        "baselines": trigrams,
        "pairs": found,
    }


def reopen(name: str, place: Path, shape: Shape) -> Any:
    """A saved model with its head, in float32, as it is evaluated."""
    from safetensors.torch import load_file

    model = build(name, shape, 0)
    saved = load_file(place / "model.safetensors")
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(saved[key])
    return for_training(name, model).eval()


def ship(folder: Path, root: Path) -> None:
    """Put models and cards into the package, and curves and results beside the recipe."""
    curves = root / "training" / "curves"
    curves.mkdir(exist_ok=True)
    for name in NAMES:
        to = root / "mlem_core" / "models" / "trio" / name
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(folder / "models" / name, to)
        for part in (name, f"{name}-finish"):
            if (folder / part / "curve.csv").is_file():
                shutil.copy(folder / part / "curve.csv", curves / f"{part}.csv")
    for file in ("results.json", "results.md", "pairs.csv"):
        shutil.copy(folder / file, root / "training" / file)


def _encode(tokenizer: Any, part: dict[str, list[list[str]]]) -> list[list[list[int]]]:
    """Groups of documents as tokens, of all sources."""
    return [
        [encoding.ids for encoding in tokenizer.encode_batch(group)]
        for groups in part.values()
        for group in groups
    ]


def _tokenizer(path: Path, text: Text, size: int) -> Any:
    from tokenizers import Tokenizer

    if not path.is_file():
        fit(text.documents("train"), size).save(str(path))
    return Tokenizer.from_file(str(path))


def _save(name: str, model: Any, tokenizer: Any, longest: int, place: Path) -> None:
    """The model in float16 and its tokenizer, in the form that transformers opens."""
    shutil.rmtree(place, ignore_errors=True)
    # A copy, so that the fast scan's methods stay out of it.
    copy = type(model)(model.config)
    copy.load_state_dict(model.state_dict())
    copy.half().save_pretrained(place)
    (place / "model.safetensors").chmod(0o644)  # safetensors leaves it to its owner alone
    limit = int(1e30) if name == "mini-mamba" else longest
    wrap(tokenizer, name == "mini-bert", limit).save_pretrained(place)


def _note(name: str, plan: Plan, finish: tuple[Plan, tuple[str, ...]] | None) -> str:
    if name != "mini-bert":
        return ""
    short = " and ".join(f"{share:.0%} of the steps in rows of {n}" for share, n in plan.short)
    note = (
        f"{plan.mask_share:.0%} of the tokens are asked for: of these 80 % are masked, 10 % are "
        f"replaced at random, 10 % are left. It began with {short} tokens, and with sines and "
        "cosines as position embeddings, without which it stays at unigrams for much longer."
    )
    if finish is None:
        return note
    last, sources = finish
    return (
        f"{note} The last {last.steps:,} steps were a second rise and fall of the rate, on the "
        f"{' and the '.join(sources)} alone, with {last.mask_share:.0%} asked for."
    )
