"""Names as they are shown: display names, short forms that stay different."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mlem_core.base.text import listed, span
from mlem_core.base.typing import Layer, layer_name, parse_layer

if TYPE_CHECKING:
    import pandas as pd

SEPARATOR = " × "  # between the features of an interaction
# Letters of Hebrew, Arabic and their kin, with the spaces and signs between them.
_OWN = "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]"
_FROM_RIGHT = re.compile(rf"{_OWN}(?:[\W_]*{_OWN})*")
# What a model is of its family: another run, a state in training, or without training.
_VARIANT = re.compile(r"(?P<family>.+)@(?P<kind>seed|step|random)(?P<number>\d*)")
_KINDS = {"seed": "seed", "step": "step", "random": "random weights"}


@dataclass(frozen=True)
class Names:
    """Display names of features, models and layers; elsewhere identifiers stay.

    A feature that is not listed is called by its identifier with spaces for underscores, an
    interaction by its parts, a model that is not listed by its identifier ("mini-gpt2, seed 1" of
    "mini-gpt2@seed1"), a layer by its number.

    Attributes
    ----------
    features, models : display names by identifier
    layers : names that layers have of their own, such as V1, by "model:number"
    groups : the group of a model, which decides its hue; else the name before an @
    axes : what the layers of a model are, where that is no layer: "region", "time (ms)"
    """

    features: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    layers: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    axes: Mapping[str, str] = field(default_factory=dict)

    def feature(self, name: str) -> str:
        """Display name of a feature, an interaction or another term."""
        if name in self.features:
            return self.features[name]
        return SEPARATOR.join(map(self._part, name.split(SEPARATOR)))

    def _part(self, name: str) -> str:
        if name in self.features:
            return self.features[name]
        # "a: x/y" is of two values of feature a.
        feature, colon, values = name.partition(": ")
        return self.features.get(feature, feature.replace("_", " ")) + colon + values

    def model(self, name: str) -> str:
        """Display name of a model: "mini-gpt2", "mini-gpt2, seed 1", "mini-gpt2, step 512"."""
        family, variant = self.family_and_variant(name)
        return f"{family}, {variant}" if variant else family

    def family_and_variant(self, name: str) -> tuple[str, str]:
        """Display name of the family of a model, and what the model is of it: "seed 1", "step 512",
        "random weights"; empty for the model that has the family's name."""
        variant = None if name in self.models else _VARIANT.fullmatch(name)
        if variant is None:
            return self.models.get(name, name), ""
        family, own = self.family_and_variant(variant["family"])
        text = f"{_KINDS[variant['kind']]} {variant['number']}".rstrip()
        return family, f"{own}, {text}" if own else text

    def families(self, models: Sequence[str]) -> dict[str, dict[str, str]]:
        """Models by the display names of their families, with what each is of its family.

        The model that has the family's name is "seed 0" beside other seeds, else "trained" beside
        others.
        """
        families: dict[str, dict[str, str]] = {}
        for model in models:
            family, variant = self.family_and_variant(model)
            families.setdefault(family, {})[model] = variant
        for variants in families.values():
            seeds = any(variant.startswith("seed") for variant in variants.values())
            for model, variant in variants.items() if len(variants) > 1 else ():
                variants[model] = variant or ("seed 0" if seeds else "trained")
        return families

    def models_title(self, models: Sequence[str]) -> str:
        """Display names of models in a sentence: "mini-gpt2 (seeds 0 to 2) and smollm2"."""
        titles = []
        for family, variants in self.families(models).items():
            texts = list(variants.values())
            numbers = [text.removeprefix("seed ") for text in texts]
            if len(texts) == 1:
                titles.append(self.model(next(iter(variants))))
            elif all(number.isdigit() for number in numbers):
                titles.append(f"{family} (seeds {span([int(number) for number in numbers])})")
            else:
                titles.append(f"{family} ({listed(texts)})")
        return listed(titles)

    def own(self, layer: Layer) -> str:
        """The name that a layer has of its own; empty for one that has only its number."""
        return self.layers.get(layer_name(layer), "") if self.layers else ""

    def axis(self, model: str) -> str:
        """What the layers of a model are: "layer", "region", "time (ms)"."""
        return self.axes.get(model, "layer")

    def layer_label(self, layer: Layer) -> str:
        """Display name of a layer after that of its model: "V1", "layer 11", "region 2"."""
        return self.own(layer) or f"{self.axis(layer[0]).partition(' (')[0]} {layer[1]}"

    def layer(self, name: str) -> str:
        """Display name of a layer that is called "model:layer", as of `layer_title`."""
        return self.layer_title(parse_layer(name))

    def layer_title(self, layer: Layer) -> str:
        """Display name of a layer: "GPT-2 layer 11", "mini-gpt2, seed 1, layer 6", "brain V1"."""
        return with_layer(self.model(layer[0]), self.layer_label(layer))

    def layers_title(self, layers: Sequence[Layer]) -> str:
        """Display names of layers in a sentence, by model: "GPT-2 layers 3 and 11; brain V1"."""
        by_model = {model: [layer for layer in layers if layer[0] == model] for model, _ in layers}
        titles = []
        for model, of_model in by_model.items():
            numbers = listed([self.own(layer) or str(layer[1]) for layer in of_model])
            several = with_layer(self.model(model), f"layers {numbers}")
            titles.append(several if len(of_model) > 1 else self.layer_title(of_model[0]))
        return "; ".join(titles)

    def table(self, table: pd.DataFrame, features: Sequence[str] = ()) -> pd.DataFrame:
        """A copy of a result table whose columns of features, models and layers have these names.

        Those columns are known by their names: feature, term, feature_a ..., those of an audit
        (top, less, more ...), model, model_a ..., layer_a, layer_b (where they hold "model:layer",
        or the number of a layer that has a name, beside its model). Other numbers, other columns
        and what else is in a column stay. For tables that are read, not for those that are read in
        again.

        `features` have a column of their own, whose heading is named too.
        """
        heads = distinct(features, [self.feature(name) for name in features])
        named = table.rename(columns=dict(zip(features, heads, strict=True)))
        for column in table.columns.difference(list(features), sort=False):
            of = str(column).removesuffix("_a").removesuffix("_b")
            call = _CALLED.get(of)
            if call is not None:
                named[column] = [
                    call(self, cell) if isinstance(cell, str) and cell else cell
                    for cell in table[column]
                ]
            model = str(column).replace("layer", "model")
            if self.layers and of == "layer" and model in table:
                cells = zip(table[model], named[column], strict=True)
                named[column] = [self.own(layer) or layer[1] for layer in cells]
        return named


_CALLED = {
    **dict.fromkeys(("feature", "term", "top", "top_before", "less", "more"), Names.feature),
    "model": Names.model,
    **dict.fromkeys(("layer", "rsa_with"), Names.layer),
}
NAMES = Names()


def with_layer(model: str, layer: str) -> str:
    """Display name of a model with that of a layer behind it; a comma follows upon a comma."""
    return f"{model}, {layer}" if ", " in model else f"{model} {layer}"


def distinct(identifiers: Sequence[str], called: Sequence[str]) -> list[str]:
    """Display names, with the identifier where two have the same name."""
    labels = dict(zip(identifiers, called, strict=True))
    often = [*labels.values()]
    return [
        labels[identifier] if often.count(labels[identifier]) == 1 else identifier
        for identifier in identifiers
    ]


def width(text: str) -> int:
    """Columns that a text takes: 2 for a wide letter (Chinese ...), 0 for a mark on a letter."""
    return sum(_columns(letter) for letter in text)


def _columns(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def shortened(names: Sequence[str], longest: int) -> list[str]:
    """Names of at most so many columns, cut in the middle; no two different ones become equal.

    Those whose ends are the same keep what distinguishes them, or get a number. A name that is
    short enough stays.
    """
    lines = [" ".join(name.split()) for name in names]
    short = {line: _cut(line, longest) for line in dict.fromkeys(lines)}
    for group in _alike(short):
        short.update(zip(group, _split_common_beginning(group, longest), strict=True))
    taken = set(short.values())
    for group in _alike(short):
        number = 1
        for line in group[1:]:
            while short[line] in taken:
                number += 1
                short[line] = f"{_cut(line, longest - 1 - len(str(number)))} {number}"
            taken.add(short[line])
    return [short[line] for line in lines]


def _alike(short: Mapping[str, str]) -> list[list[str]]:
    """Names that have become equal, together."""
    groups: dict[str, list[str]] = {}
    for line, label in short.items():
        groups.setdefault(label, []).append(line)
    return [group for group in groups.values() if len(group) > 1]


def _cut(line: str, longest: int) -> str:
    """The beginning and the end, with … between them, where the whole is too long."""
    if width(line) <= longest:
        return line
    head = _fitting(line, longest - longest // 2 - 1)
    tail = _fitting(line[::-1], longest // 2)[::-1]
    return f"{head.rstrip()}…{tail.lstrip()}"


def _fitting(text: str, columns: int) -> str:
    """Beginning of a text, as much as fits."""
    room = columns
    for at, letter in enumerate(text):
        room -= _columns(letter)
        if room < 0:
            return text[:at]
    return text


def _split_common_beginning(group: Sequence[str], longest: int) -> list[str]:
    """The beginning that all have, and what tells each apart."""
    same = _shared(group)
    # The digits before a difference belong to its number.
    while same and group[0][same - 1].isdigit():
        same -= 1
    ends = _shared([line[same:][::-1] for line in group])
    cores = [line[same : len(line) - ends] for line in group]
    room = longest - 2
    own = min(max(map(width, cores)), room - room // 3)
    cores = [_cut(core, own) for core in cores]
    left = room - own
    before, after = group[0][:same], group[0][len(group[0]) - ends :] if ends else ""
    tail = "" if width(after) == 0 else "…"
    if width(after) <= left // 3:
        tail, left = after, left - width(after) + 1
    head = before if width(before) <= left else f"{_fitting(before, left).rstrip()}…"
    return [f"{head}{core}{tail}" for core in cores]


def _shared(group: Sequence[str]) -> int:
    """Number of letters at the beginning that all have in common."""
    first, last = min(group), max(group)
    both = enumerate(zip(first, last, strict=False))
    return next((at for at, (a, b) in both if a != b), len(first))


def isolated(text: str) -> str:
    """Text whose parts from right to left (Arabic, Hebrew) do not change the order around them."""
    return _FROM_RIGHT.sub("\u2068\\g<0>\u2069", text)
