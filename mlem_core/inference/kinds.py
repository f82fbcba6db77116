"""What matters most in each kind of model, as far as the members of a group let it be said.

A feature matters most in a kind if its importance, mean over the layers of a model, is above 0 and
above that of every other feature: each difference has to be above 0 by its interval over members
(and stimuli, where there are intervals over these), taken within members. All of these have to
hold at once, so that none is corrected for their number (an intersection-union test; Berger 1982),
and no more where all kinds say the same. Where only some do, they are corrected for the number of
kinds. Of a kind of which there is one model, nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.results import Results
from mlem_core.analysis.selection import Selection
from mlem_core.base.labels import Names
from mlem_core.base.student import CONFIDENCE
from mlem_core.base.text import listed, many, number
from mlem_core.base.typing import FloatArray
from mlem_core.inference.caveats import HARDLY
from mlem_core.inference.intervals import LayerIntervals
from mlem_core.inference.layer_scores import layer_scores, scores_left
from mlem_core.inference.populations import Left, profile_interval
from mlem_core.pairs.resampling_units import Units


class Kind(NamedTuple):
    """A group of models.

    Attributes
    ----------
    name : of the group
    members : how many different ones it has
    rho : their mean held-out ρ
    top : the feature with the highest mean importance
    importance : of it
    sure, surely : whether it matters most for sure, and if so many kinds are looked at one by one
    above : whether it is above 0 for sure
    rivals : those that it is not sure to be above
    """

    name: str
    members: int
    rho: float
    top: str
    importance: float
    sure: bool
    surely: bool
    above: bool
    rivals: tuple[str, ...]


def kind_of(
    name: str,
    values: FloatArray,
    columns: Sequence[str],
    stimuli: Left | None = None,
    n_kinds: int = 1,
) -> Kind:
    """What is known of a group from its members.

    Parameters
    ----------
    values : (n_members, 1 + n_columns) held-out ρ and importances, means over layers; members
        that are the same to the last digit are one
    columns : features, and interactions where they are weighed
    stimuli : the same without each block of stimuli, (n_blocks, n_members, 1 + n_columns)
    n_kinds : how many groups are looked at
    """
    _, first = np.unique(values, axis=0, return_index=True)
    at = np.sort(first)
    own = values[at]
    mean = own.mean(axis=0)
    top = int(mean[1:].argmax())
    ahead = _ahead(own, top)
    left = None if stimuli is None else Left(_ahead(stimuli.without[:, at], top), stimuli.sizes)
    above = [
        profile_interval(ahead, left, confidence).lower > 0
        for confidence in (CONFIDENCE, 1 - (1 - CONFIDENCE) / n_kinds)
    ]
    enough = len(own) > 1 and mean[0] >= HARDLY
    others = [column for column in columns if column != columns[top]]
    return Kind(
        name,
        len(own),
        float(mean[0]),
        columns[top],
        float(mean[1 + top]),
        bool(enough and above[0].all()),
        bool(enough and above[1].all()),
        bool(above[0][0]),
        tuple(one for one, sure in zip(others, above[0][1:], strict=True) if not sure),
    )


def _ahead(values: FloatArray, top: int) -> FloatArray:
    """(..., n_columns) the importance of a column, and how far it is above each of the others."""
    own = values[..., 1 + top : 2 + top]
    return np.concatenate((own, own - np.delete(values[..., 1:], top, axis=-1)), axis=-1)


@dataclass(frozen=True)
class Kinds:
    """What is known of the kinds of models of an analysis.

    Attributes
    ----------
    kinds : the groups that have models
    over : what is drawn again: "models", or "models, and sentences"
    names : what features are called
    """

    kinds: tuple[Kind, ...]
    over: str
    names: Names

    @property
    def known(self) -> list[Kind]:
        """Those with two members, of which something can be said."""
        return [kind for kind in self.kinds if kind.members > 1]

    @property
    def headline(self) -> str:
        """What matters most in each kind, as far as it is sure."""
        if self._all_alike:
            said = f"{self._called(self.known[0].top)} matters most in {self._where()}"
        else:
            parts = [f"{self._called(top)} matters most in {listed(of)}" for top, of in self._by()]
            said = "; ".join(parts) or "no feature matters most for sure"
        return f"{self._basis()}: {said}."

    @property
    def unsure(self) -> str:
        """Of which kinds the headline says nothing, and why; empty where it speaks of all."""
        if self._all_alike:
            return ""
        text = "; ".join(self._not(kind) for kind in self.known if not kind.surely)
        return f"{text[0].upper()}{text[1:]}." if text else ""

    @property
    def how_sure(self) -> str:
        """What it rests on, and what it does not speak of."""
        alone = [kind.name for kind in self.kinds if kind.members < 2]
        claimed = [kind for kind in self.known if kind.surely or self._all_alike]
        found = f"Importance {_span(claimed)}, mean over layers; " if claimed else ""
        whose = "" if "," in self.over else " on these stimuli"
        text = (
            f"{found}95 % intervals are over {self.over}{whose}, and speak of other models of "
            "these kinds, not of other kinds."
        )
        text = text if text.startswith("95") else text[0].upper() + text[1:]
        text = f"{self.unsure} {text}".strip()
        if alone:
            text += f" Of {listed(alone)} there is one checkpoint, which says nothing of its kind."
        return text

    @property
    def _all_alike(self) -> bool:
        """Whether one feature matters most in every kind: one claim, that all have to support."""
        tops = {kind.top for kind in self.known}
        return len(tops) == 1 and all(kind.sure for kind in self.known)

    def _by(self) -> list[tuple[str, list[str]]]:
        sure = [kind for kind in self.known if kind.surely]
        tops = dict.fromkeys(kind.top for kind in sure)
        return [(top, [kind.name for kind in sure if kind.top == top]) for top in tops]

    def _not(self, kind: Kind) -> str:
        if kind.rho < HARDLY:
            return f"in {kind.name} no feature does (held-out ρ {number(kind.rho)})"
        if not kind.above:
            return f"in {kind.name} no feature is above 0 for sure"
        if not kind.rivals:
            many_kinds = f"where {many(len(self.kinds), 'kind')} are looked at"
            return f"in {kind.name} {self._called(kind.top)} not for sure {many_kinds}"
        rivals = listed([self._called(one) for one in kind.rivals[:3]])
        more = f" and {len(kind.rivals) - 3} more" if len(kind.rivals) > 3 else ""
        return f"in {kind.name} {self._called(kind.top)} is not separated from {rivals}{more}"

    def _called(self, feature: str) -> str:
        return self.names.feature(feature)

    def _where(self) -> str:
        return "each" if len(self.known) > 1 else self.known[0].name

    def _basis(self) -> str:
        sizes = {kind.members for kind in self.known}
        if len(sizes) == 1:
            each = f"{sizes.pop()} models"
        else:
            each = f"{min(sizes)} to {max(sizes)} models"
        if len(self.known) == 1:
            return f"Over {each} of one kind"
        return f"Over {each} of each of {many(len(self.known), 'kind')}"


def _span(claimed: Sequence[Kind]) -> str:
    values = [kind.importance for kind in claimed]
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def kinds(
    analysis: Analysis,
    results: Results,
    selection: Selection | None = None,
    *,
    bounds: LayerIntervals | None = None,
    names: Names | None = None,
) -> Kinds | None:
    """What matters most in each group of models; None where no group has two different members.

    Parameters
    ----------
    results : of the selection
    bounds : of the same layers and features; None: intervals are over members alone, on these
        stimuli
    names : what features are called
    """
    selection = analysis.select() if selection is None else selection
    if not analysis.spec.has_seeds:
        return None
    values, columns = layer_scores(results, selection)
    left = scores_left(bounds, selection, columns)
    places: dict[str, list[int]] = {}
    for at, (model, _) in enumerate(selection.layers):
        places.setdefault(model, []).append(at)
    groups = [(name, [one for one in own if one in places]) for name, own in analysis.spec.groups]
    groups = [(name, own) for name, own in groups if own]
    found = []
    for name, own in groups:
        rows = np.stack([values[places[one]].mean(axis=0) for one in own])
        stimuli = None
        if left is not None:
            without = [left.without[:, places[one]].mean(axis=1) for one in own]
            stimuli = Left(np.stack(without, axis=1), left.sizes)
        found.append(kind_of(name, rows, columns, stimuli, len(groups)))
    over = "models" if left is None else f"models, and {Units.of(analysis.stimuli).over}"
    known = Kinds(tuple(found), over, names or Names())
    return known if known.known else None
