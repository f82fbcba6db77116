"""Most important feature of each group of models, as far as its members let it be said.

A feature matters most in a group if its importance, mean over the layers of a model, is above 0 and
above that of every other feature: each difference has to be above 0 by its interval over members
(and stimuli, where there are intervals over these), taken within members. All of these have to
hold at once, so that none is corrected for their number (an intersection-union test; Berger 1982),
and no more where all groups say the same. Where only some do, they are corrected for the number of
groups. A group with one model has no result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mlem_core.base.labels import Names
from mlem_core.base.numbers import CONFIDENCE
from mlem_core.base.text import fraction, listed, many
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.groups.profiles import mean_estimate
from mlem_core.inference.caveats import HARDLY
from mlem_core.inference.intervals import Left


class TopFeature(NamedTuple):
    """The feature with the highest importance in a group of models.

    Attributes
    ----------
    group : its name
    members : how many different ones it has
    rho : their mean held-out ρ
    feature : the one with the highest mean importance
    importance : of it
    sure, surely : whether it matters most for sure, and if so many groups are looked at one by one
    above : whether it is above 0 for sure
    rivals : those that it is not sure to be above
    """

    group: str
    members: int
    rho: float
    feature: str
    importance: float
    sure: bool
    surely: bool
    above: bool
    rivals: tuple[str, ...]


def top_feature(
    group: str,
    values: FloatArray,
    columns: Sequence[str],
    stimuli: Left | None = None,
    n_groups: int = 1,
) -> TopFeature:
    """The feature that matters most in a group, from its members.

    Parameters
    ----------
    values : (n_members, 1 + n_columns) held-out ρ and importances, means over layers; members
        that are the same to the last digit are one
    columns : features, and interactions where they are weighed
    stimuli : the same without each block of stimuli, (n_blocks, n_members, 1 + n_columns)
    n_groups : how many groups are looked at
    """
    _, first = np.unique(values, axis=0, return_index=True)
    at = np.sort(first)
    own = values[at]
    mean = own.mean(axis=0)
    top = int(mean[1:].argmax())
    ahead = _ahead(own, top)
    left = None if stimuli is None else Left(_ahead(stimuli.without[:, at], top), stimuli.sizes)
    above = [
        mean_estimate(ahead, left, confidence).lower > 0
        for confidence in (CONFIDENCE, 1 - (1 - CONFIDENCE) / n_groups)
    ]
    enough = len(own) > 1 and mean[0] >= HARDLY
    others = [column for column in columns if column != columns[top]]
    return TopFeature(
        group,
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
class TopFeatures:
    """Most important feature of each group of models, in sentences.

    Attributes
    ----------
    groups : those that have models
    over : what is drawn again: "models", or "models, and sentences"
    names : what features are called
    """

    groups: tuple[TopFeature, ...]
    over: str
    names: Names

    @classmethod
    def of(
        cls,
        places: Mapping[str, Sequence[IntArray]],
        values: FloatArray,
        columns: Sequence[str],
        stimuli: Left | None = None,
        *,
        over: str = "models",
        names: Names | None = None,
    ) -> TopFeatures:
        """The groups of some models.

        Parameters
        ----------
        places : of each group, where the layers of each of its members stand
        values, columns, stimuli : of the layers, as of `top_feature`
        """
        found = []
        for name, own in places.items():
            rows, left = np.stack([values[at].mean(axis=0) for at in own]), None
            if stimuli is not None:
                without = [stimuli.without[:, at].mean(axis=1) for at in own]
                left = Left(np.stack(without, axis=1), stimuli.sizes)
            found.append(top_feature(name, rows, columns, left, len(places)))
        return cls(tuple(found), over, names or Names())

    @property
    def known(self) -> list[TopFeature]:
        """The groups with at least two members, which can have results."""
        return [group for group in self.groups if group.members > 1]

    @property
    def headline(self) -> str:
        """Most important feature of each group, as far as it is sure."""
        if self._all_alike:
            where = "each" if len(self.known) > 1 else self.known[0].group
            said = f"{self._called(self.known[0].feature)} matters most in {where}"
        else:
            sure = [group for group in self.known if group.surely]
            in_groups = {
                top: [group.group for group in sure if group.feature == top]
                for top in dict.fromkeys(group.feature for group in sure)
            }
            parts = [
                f"{self._called(top)} matters most in {listed(of)}" for top, of in in_groups.items()
            ]
            said = "; ".join(parts) or "no feature matters most for sure"
        return f"{self._basis()}: {said}."

    @property
    def unsure(self) -> str:
        """The groups that the headline leaves out, and why; empty where it has all."""
        if self._all_alike:
            return ""
        text = "; ".join(self._not(group) for group in self.known if not group.surely)
        return f"{text[0].upper()}{text[1:]}." if text else ""

    @property
    def how_sure(self) -> str:
        """Basis of the headline, and the groups that it says nothing about."""
        alone = [group.group for group in self.groups if group.members < 2]
        claimed = [group for group in self.known if group.surely or self._all_alike]
        found = f"Importance {_span(claimed)}, mean over layers; " if claimed else ""
        whose = "" if "," in self.over else " on these stimuli"
        text = (
            f"{found}95 % intervals are over {self.over}{whose}, and speak of other models of "
            "these groups, not of other groups."
        )
        text = f"{self.unsure} {text}".strip()
        if alone:
            text += f" In {listed(alone)} there is one model, which says nothing of other models."
        return text

    @property
    def _all_alike(self) -> bool:
        """Whether one feature matters most in every group: one claim, that all have to support."""
        tops = {group.feature for group in self.known}
        return len(tops) == 1 and all(group.sure for group in self.known)

    def _not(self, group: TopFeature) -> str:
        if group.rho < HARDLY:
            return f"in {group.group} no feature does (held-out ρ {fraction(group.rho)})"
        if not group.above:
            return f"in {group.group} no feature is above 0 for sure"
        top = self._called(group.feature)
        if not group.rivals:
            looked_at = f"where {many(len(self.groups), 'group')} are looked at"
            return f"in {group.group} {top} not for sure {looked_at}"
        rivals = listed([self._called(one) for one in group.rivals[:3]])
        more = f" and {len(group.rivals) - 3} more" if len(group.rivals) > 3 else ""
        return f"in {group.group} {top} is not separated from {rivals}{more}"

    def _called(self, feature: str) -> str:
        return self.names.feature(feature)

    def _basis(self) -> str:
        sizes = sorted({group.members for group in self.known})
        each = f"{sizes[0]} models" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} models"
        if len(self.known) == 1:
            return f"Over {each} of one group"
        return f"Over {each} of each of {many(len(self.known), 'group')}"


def _span(claimed: Sequence[TopFeature]) -> str:
    values = [group.importance for group in claimed]
    low, high = fraction(min(values)), fraction(max(values))
    return low if low == high else f"{low} to {high}"
