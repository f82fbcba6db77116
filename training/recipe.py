"""The whole recipe, at two sizes: text, tokenizer, training, evaluation of what is shipped."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

from grammars import probing
from mlem_core.representations.loading import read_packed
from training import evaluate
from training.cards import card, table
from training.networks import (
    MASKED,
    NAMES,
    OBJECTIVES,
    Shape,
    build,
    embeddings,
    for_training,
)
from training.packed import pack as pack_weights
from training.pairs import Pair, pairs
from training.text import PARTS, SOURCES, TWICE, Text, load
from training.train import Plan, pack, train
from training.vocabulary import as_before, fit, wrap

DEV_ROWS = 96  # of the development text, for the curves
PAIRS = Path(__file__).with_name("pairs.csv")
ROOT = Path(__file__).resolve().parents[1]
SHIPPED = Path("mlem_core", "representations", "trio")  # below it
STEPS_OF = NAMES[:3]  # the kinds whose training can be looked at: the trio


@dataclass(frozen=True)
class Size:
    """What is made from what: the networks, the text, and how long each is trained."""

    shape: Shape
    plans: dict[str, Plan]
    sources: tuple[str, ...] = SOURCES
    share: float = 1.0
    masked_tokens: int = 4000  # how many held-out tokens the masked model is asked for
    pairs: int = 300


# A masked model has to find out which tokens are neighbours before it beats a unigram model; in
# rows of 16 tokens this takes a third of the steps that it takes in rows of 128.
_SHORT = ((0.06, 16), (0.1, 32))
_KEEP = (0, *(2**i for i in range(5, 12)))
_CAUSAL = Plan(steps=8000, again=(4000, 6000), keep=_KEEP, whole=True)
_PLANS = {
    # Attention in both directions takes longest: each batch asks for a third of its tokens.
    "mini-bert": Plan(
        steps=14_000,
        again=(7000, 10_000),
        keep=(0, *(2 * n for n in _KEEP[1:])),
        whole=True,
        short=_SHORT,
    ),
    "mini-gpt2": _CAUSAL,
    "mini-mamba": _CAUSAL,
    "mini-bert-causal": _CAUSAL,
    "mini-mamba-masked": replace(_CAUSAL, short=_SHORT),
}
SIZES = {
    "full": Size(Shape(), _PLANS),
    "tiny": Size(
        Shape(vocabulary=1024, width=64, layers=2, mamba_layers=4, heads=2, longest=64),
        {
            name: Plan(steps=600, rows=16, short=_SHORT)
            if objective == MASKED
            else Plan(steps=300, rows=16, keep=(0, 100))
            for name, objective in OBJECTIVES.items()
        },
        sources=("stories",),
        masked_tokens=500,
        pairs=60,
    ),
}


def run(
    size: Size, folder: Path, names: Sequence[str] = NAMES, seeds: Sequence[int] = (0,)
) -> dict[str, dict[str, Any]]:
    """Make the models of a size in `folder`, and measure them.

    `folder/<kind>-s<seed>` has what a run goes on from, the curve and the kept steps,
    `folder/models/<kind>` the files as they are shipped with their card, `folder/results.json` and
    `results.md` what was measured, and `folder/harder.csv` the minimal pairs of the words of this
    text. Returns the results by model.
    """
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    material = gather(size, folder)
    results = {}
    if (folder / "results.json").is_file():  # of the other models, from an earlier run
        results = json.loads((folder / "results.json").read_text())
    for name, seed in itertools.product(names, seeds):
        plan = replace(size.plans[name], seed=seed)
        place = folder / f"{name}-s{seed}"
        model = train(name, size.shape, plan, material.groups, material.rows, place)
        packed = _save(name, plan, model, material.tokenizer, folder)
        results[model_name(name, seed)] = {
            **about(plan, size.shape, model, material.text),
            **measure(name, reopen(name, packed, size.shape), size, material),
        }
        # At once, so that a run that is stopped keeps what it has measured.
        order = [model_name(kind, number) for kind in NAMES for number in range(100)]
        results = {model: results[model] for model in order if model in results}
        (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / "results.md").write_text(table(results))
    with (folder / "harder.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([Pair._fields, *material.pairs["harder pairs"]])
    for name in names:
        own = {model: result for model, result in results.items() if kind_of(model) == name}
        (folder / "models" / name / "README.md").write_text(card(name, own))
    print(table(results), flush=True)
    return results


@dataclass(frozen=True)
class Material:
    """What all models of a size share.

    Attributes
    ----------
    text : the text in its parts
    tokenizer : of all models
    groups : the tokens of a round through the training text, by group and document
    rows : of the development text, for the curves
    pairs : the minimal pairs: "pairs", those of `pairs.csv`, and "harder pairs", of more words
    trigrams : bits per word of the trigram models on the test text
    """

    text: Text
    tokenizer: Any
    groups: list[list[list[int]]]
    rows: torch.Tensor
    pairs: dict[str, list[Pair]]
    trigrams: dict[str, float]


def gather(size: Size, folder: Path) -> Material:
    """Text, tokenizer and minimal pairs of a size; what is fetched or fitted stays in `folder`."""
    text = load(folder / "debian", size.sources, size.share)
    tokenizer = _tokenizer(folder / "tokenizer.json", text, size.shape.vocabulary)
    held = pack(_encode(tokenizer, text.dev), size.shape.longest, np.random.default_rng(0))
    train_text, dev, test = (text.documents(part) for part in PARTS)
    return Material(
        text,
        tokenizer,
        training_tokens(text, tokenizer),
        held[:DEV_ROWS],
        {"pairs": read_pairs(PAIRS), "harder pairs": pairs(train_text, size.pairs)},
        evaluate.baselines(train_text, dev, test, tokenizer),
    )


def read_pairs(path: Path) -> list[Pair]:
    """The minimal pairs of a CSV file."""
    with path.open(encoding="utf-8") as file:
        return [Pair(*row) for row in list(csv.reader(file))[1:]]


def model_name(kind: str, seed: int) -> str:
    """What a user calls the model of a kind and a seed: `mini-gpt2`, `mini-gpt2@seed1`."""
    return f"{kind}@seed{seed}" if seed else kind


def kind_of(model: str) -> str:
    """The kind of a model by its name."""
    return model.partition("@")[0]


def about(plan: Plan, shape: Shape, model: Any, text: Text) -> dict[str, Any]:
    """What a model is, and how long it was trained on how much."""
    n_parameters = sum(p.numel() for p in model.parameters())
    return {
        "layers": model.config.num_hidden_layers,
        "width": shape.width,
        "parameters": n_parameters,
        "without_embeddings": n_parameters - embeddings(model),
        "words": sum(len(document.split()) for document in text.documents("train")),
        "steps": plan.steps,
        "tokens_per_step": plan.rows * shape.longest,
        "tokens": plan.steps * plan.rows * shape.longest,
        "longest": shape.longest,
        "seed": plan.seed,
    }


def measure(name: str, model: Any, size: Size, material: Material) -> dict[str, Any]:
    """Bits on the test text, those of the baselines, and the minimal pairs."""
    tokenizer, test = material.tokenizer, material.text.documents("test")
    ids = evaluate.stream([e.ids for e in tokenizer.encode_batch(test)])
    found = {
        which: evaluate.prefer(name, model, tokenizer, chosen)
        for which, chosen in material.pairs.items()
    }
    if OBJECTIVES[name] == MASKED:
        trained = material.text.documents("train")
        documents = [e.ids for e in tokenizer.encode_batch(trained)]
        unigram = evaluate.unigrams(documents, size.shape.vocabulary)
        bits, baseline = evaluate.masked_bits(
            name, model, ids, size.shape.longest, unigram, size.masked_tokens
        )
        baselines = {"unigram model": baseline}
        return {"unit": "masked token", "bits": bits, "baselines": baselines, **found}
    n_words = sum(len(evaluate.split(tokenizer, document)) + 1 for document in test)
    bits = evaluate.causal_bits(name, model, ids, size.shape.longest) / n_words
    return {"unit": "word", "bits": bits, "baselines": material.trigrams, **found}


def reopen(name: str, packed: Path, shape: Shape) -> Any:
    """A packed model with its head, in float32, as it is evaluated."""
    model, saved = build(name, shape, 0), read_packed(packed)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(saved[_shipped(key)])
    return for_training(name, model).eval()


def ship(folder: Path, root: Path, names: Sequence[str] = NAMES) -> None:
    """Put models and cards into the package, and curves and results beside the recipe."""
    curves = root / "training" / "curves"
    curves.mkdir(exist_ok=True)
    measured = json.loads((folder / "results.json").read_text())
    for name in names:
        to = root / SHIPPED / name
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(folder / "models" / name, to)
        for seed in (found["seed"] for m, found in measured.items() if kind_of(m) == name):
            run = f"{name}-s{seed}"
            shutil.copy(folder / run / "curve.csv", curves / f"{run}.csv")
    for file in ("results.json", "results.md", "harder.csv"):
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
        made = fit(text.documents("train"), size, grammar_words())
        as_before(made, ROOT / SHIPPED / NAMES[0] / "tokenizer.json").save(str(path))
    return Tokenizer.from_file(str(path))


def _save(name: str, plan: Plan, model: Any, tokenizer: Any, folder: Path) -> Path:
    """A model as it is shipped: 8-bit weights, and of seed 0 the kept steps of a kind in 4 bits."""
    place = folder / "models" / name
    place.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(place)
    limit = getattr(model.config, "max_position_embeddings", int(1e30))
    wrap(tokenizer, OBJECTIVES[name] == MASKED, limit).save_pretrained(place)
    weights = {_shipped(key): p.detach().numpy() for key, p in model.named_parameters()}
    packed = place / f"seed-{plan.seed}.safetensors"
    pack_weights(weights, packed, bits=8)
    if plan.seed == 0 and name in STEPS_OF:
        for old in place.glob("step-*.safetensors"):
            old.unlink()
        for step in plan.keep:
            kept = load_file(folder / f"{name}-s0" / f"step-{step}.safetensors")
            found = {_shipped(key): tensor for key, tensor in kept.items()}
            pack_weights(found, place / f"step-{step}.safetensors", bits=4)
        pack_weights(weights, place / f"step-{plan.steps}.safetensors", bits=4)
    return packed


def _shipped(key: str) -> str:
    """What a weight is called in the files: as in the network without a head of our own."""
    return key.removeprefix("base_model.")


def training_tokens(text: Text, tokenizer: Any) -> list[list[list[int]]]:
    """The groups of documents of a round through the training text, as tokens."""
    parts = {source: groups * (1 + (source in TWICE)) for source, groups in text.train.items()}
    return _encode(tokenizer, parts)


def grammar_words() -> list[str]:
    """All forms of the nouns and verbs of the probing grammar."""
    verbs = (probing.INTRANSITIVE, probing.TRANSITIVE, probing.CLAUSAL, probing.ASKING)
    forms = [form for kind in verbs for verb in kind.values() for form in verb]
    return [*forms, *(f for noun, (plural, _) in probing.NOUNS.items() for f in (noun, plural))]
