"""What was measured, as a table, and the card that lies beside each model's weights."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from typing import Any

from mlem_core.base.text import listed
from training.networks import CAUSAL, MASKED, OBJECTIVES
from training.pairs import PHENOMENA

KINDS = {
    "mini-bert": "BERT: bidirectional attention, trained to restore masked tokens",
    "mini-gpt2": "GPT-2: causal attention, trained to predict the next token",
    "mini-mamba": "Mamba: a selective state-space model, trained to predict the next token",
    "mini-bert-causal": "BERT with causal attention, trained to predict the next token",
    "mini-mamba-masked": "A bidirectional Mamba, trained to restore masked tokens",
}
# What each was to reach: bits below the baselines, the share of pairs, and of the harder ones.
FEWER_BITS = {CAUSAL: 0.08, MASKED: 0.40}
PREFERRED = {"pairs": 0.80, "harder pairs": 0.75}

# What was tried with the kinds of the full size that fall short, for their cards.
TRIED = {
    "mini-gpt2": (
        "What is missed is missed by at most four pairs of 300, less than 300 pairs can tell: "
        "seed 2 reaches all. Seed 0 had 74.0 % of determiner-noun number after 4,000 steps, 80.3 % "
        "after 6,000 and 79.0 % after 8,000, while its bits went on to fall (9.1 % below "
        "Kneser-Ney after 6,000 steps, 10.4 % after 8,000): more of the same training does not "
        "settle it."
    ),
    "mini-mamba": (
        "Seeds differ in determiner-noun number (80.7, 73.0 and 82.3 %) with the same bits per "
        "word; seed 2 reaches all. Seed 0 had 75.3 % of the harder pairs after 4,000 steps, 76.3 % "
        "after 6,000 and 74.7 % after 8,000, while its bits went on to fall. Seed 1 lacks plurals "
        "(52 % of the harder ones)."
    ),
    "mini-mamba-masked": (
        "No seed reaches all. Seed 0 lacks two pairs of 300 in determiner-noun number, seed 1 "
        "thirteen in subject-verb agreement (and one of the harder ones), seed 2 five: both prefer "
        "plural verbs. It had 8,000 steps where mini-bert had 14,000; more were not tried."
    ),
}


def interval(share: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of `n` (Wilson 1927)."""
    z = 1.959964
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return middle - half, middle + half


def gains(result: dict[str, Any]) -> dict[str, float]:
    """By which share a model's bits are below each baseline's."""
    return {name: 1 - result["bits"] / bits for name, bits in result["baselines"].items()}


def goals(name: str, result: dict[str, Any]) -> list[str]:
    """One sentence for each goal of a kind: reached, or by how much it is missed."""
    said = []
    goal = FEWER_BITS[OBJECTIVES[name]]
    for baseline, gain in gains(result).items():
        line = f"{gain:.1%} fewer bits per {result['unit']} than the {baseline}"
        said.append(f"{line} (goal: {goal:.0%}){_missed(gain, goal)}.")
    for which, asked in PREFERRED.items():
        for phenomenon in PHENOMENA:
            if phenomenon not in result[which]:
                continue
            found = result[which][phenomenon]
            low, high = interval(found["share"], found["n"])
            cases = ", ".join(
                f"{case} {share:.0%}" for case, share in found.items() if case not in ("share", "n")
            )
            said.append(
                f"{phenomenon}: the right form in {found['share']:.1%} of {found['n']:.0f} minimal "
                f"{which} (95 % interval {low:.1%} to {high:.1%}; {cases}; goal: {asked:.0%})"
                f"{_missed(found['share'], asked)}."
            )
    return said


def _missed(value: float, goal: float) -> str:
    return "" if value >= goal else f", **{100 * (goal - value):.1f} points short**"


def table(results: dict[str, dict[str, Any]]) -> str:
    """The results as a Markdown table: a column for each kind, its seeds one after the other."""
    of_kind: dict[str, list[dict[str, Any]]] = {}
    for model, result in results.items():
        of_kind.setdefault(model.partition("@")[0], []).append(result)
    kinds = [(kind, of_kind[kind]) for kind in KINDS if kind in of_kind]
    rows = ["| | " + " | ".join(kind for kind, _ in kinds) + " |", "|---" * (len(kinds) + 1) + "|"]

    def add(label: str, cell: Callable[[dict[str, Any]], str], each: bool = True) -> None:
        cells = [[cell(result) for result in seeds] for _, seeds in kinds]
        told = [" / ".join(found if each and any(found) else found[:1]) for found in cells]
        rows.append(f"| {label} | " + " | ".join(told) + " |")

    add("seeds", lambda r: str(r["seed"]))
    add("layers", lambda r: str(r["layers"]), each=False)
    add("parameters", lambda r: f"{r['parameters']:,}", each=False)
    add("of these not embeddings", lambda r: f"{r['without_embeddings']:,}", each=False)
    add("steps", lambda r: f"{r['steps']:,}", each=False)
    add("tokens seen", lambda r: f"{r['tokens']:,}", each=False)
    add("held-out bits", lambda r: f"{r['bits']:.3f}")
    add("per", lambda r: str(r["unit"]), each=False)
    for name in dict.fromkeys(name for r in results.values() for name in r["baselines"]):
        add(f"below the {name}", lambda r, name=name: _below(r, name))  # type: ignore[misc]
    for which, asked in PREFERRED.items():
        for phenomenon in PHENOMENA:
            if any(phenomenon in r[which] for r in results.values()):
                label = f"{phenomenon}, {which} (goal {asked:.0%})"
                add(label, lambda r, at=(which, phenomenon): f"{r[at[0]][at[1]]['share']:.1%}")  # type: ignore[misc]
    return "\n".join(rows) + "\n"


def _below(result: dict[str, Any], baseline: str) -> str:
    gain = gains(result).get(baseline)
    return "" if gain is None else f"{gain:.1%}"


def card(name: str, results: dict[str, dict[str, Any]]) -> str:
    """The card of a kind, Markdown with the header that the Hugging Face hub reads.

    `results` has what was measured of each of its seeds, by model.
    """
    first = next(iter(results.values()))
    reached = "\n\n".join(
        f"`{model}`:\n\n" + "\n".join(f"- {sentence}" for sentence in goals(name, result))
        for model, result in results.items()
    )
    if name in TRIED:
        reached += f"\n\n{_wrapped(TRIED[name] + ' More: `training/README.md`.')}"
    seeds = [str(result["seed"]) for result in results.values()]
    others = [f"`{kind}`" for kind in KINDS if kind != name]
    about = (
        f"{KINDS[name]}. {first['layers']} layers, {first['width']} units wide, "
        f"{first['parameters']:,} parameters ({first['without_embeddings']:,} of them not word "
        f"or position embeddings), 8-bit weights. Seeds: {listed(seeds)}.",
        f"One of five kinds of small models, with {listed(others)}: same text, same tokenizer, "
        "same width, as many parameters. What differs is the architecture and what it is trained "
        f"to do. They are made for comparing representations (`--model {name}`); they are no use "
        "for writing text or answering questions.",
    )
    text = (
        f"{first['words']:,} words: short texts written for this by SmolLM2-135M-Instruct "
        "(Apache-2.0, its weights at 4 bits), the example sentences of WordNet 3.0 (WordNet "
        "licence), *Emma*, *Pride and Prejudice* and *Sense and Sensibility* by Jane Austen and "
        "the World English Bible (public domain). The writer was asked about the people and deeds "
        "of the probing grammar; the grammar itself wrote none of the text. Everything is "
        "lower-cased. Where it comes from and how it is made again: `training/README.md`."
    )
    training = (
        f"From random weights: {first['steps']:,} steps of {first['tokens_per_step']:,} tokens "
        f"({first['tokens']:,} tokens in all), Muon and AdamW, bfloat16 autocast on a CPU, rows of "
        f"{first['longest']} tokens. It reads `<s> sentence"
        + (" </s>`. " if OBJECTIVES[name] == MASKED else "`. ")
        + _NOTES.get(name, "")
    )
    return f"""---
language: en
license: bsd-3-clause
library_name: transformers
---
# {name}

{_wrapped(*about)}

## Text

{_wrapped(text)}

## Training

{_wrapped(training)}

## What it reaches

On held-out text and on minimal pairs made from the vocabulary of the probing grammar
(`training/results.md` has all kinds side by side):

{reached}

## Limits

A small model of little text, much of it from old books and from a small language model: expect
their idea of the world, of men and of women, and odd facts. Rare words are split into pieces of a
few letters.
"""


_MASKING = (
    "30 % of the tokens are asked for: of these 80 % are masked, 10 % are replaced at random, 10 % "
    "are left. Its first steps had rows of 16 tokens, the next ones rows of 32."
)
_NOTES = {
    "mini-bert": f"{_MASKING} Its position embeddings began as sines and cosines.",
    "mini-bert-causal": "Its position embeddings began as sines and cosines.",
    "mini-mamba-masked": (
        f"{_MASKING} Each layer has one mixer that reads from the left and one from the right; "
        "transformers has no such class, the program brings it."
    ),
}


def _wrapped(*paragraphs: str) -> str:
    return "\n\n".join(textwrap.fill(paragraph, width=100) for paragraph in paragraphs)
