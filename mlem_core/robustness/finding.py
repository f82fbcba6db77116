"""What is found about two layers, and whether it may be said: the audit has the last word.

How alike two layers are is computed again in the variants of the audit. Where one of them changes
it by more than a flag allows, or random weights do about as well, there is no headline, and the
reason stands in its place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from mlem_core.base.text import listed, many, number
from mlem_core.base.typing import Layer
from mlem_core.inference.explained import Explanation
from mlem_core.robustness.audit_tables import Audit
from mlem_core.robustness.flags import flags
from mlem_core.robustness.variants import CONTROL, SAYS

Verdict = Literal["holds", "changes", "unknown"]


@dataclass(frozen=True)
class Checked:
    """What an audit says of the RSA correlation of two layers.

    Attributes
    ----------
    variants : variant and RSA of each that has both layers, in the order of the audit
    reasons : why it is flagged, a sentence's part a variant
    audited : whether there is an audit
    """

    variants: tuple[tuple[str, float], ...] = ()
    reasons: tuple[str, ...] = ()
    audited: bool = False

    @property
    def verdict(self) -> Verdict:
        if not self.variants:
            return "unknown"
        return "changes" if self.reasons else "holds"

    @property
    def badge(self) -> str:
        """The verdict in a few words."""
        n = len(self.variants)
        if not n:
            return "cannot be checked" if self.audited else "not checked yet"
        if self.reasons:
            return f"changes in {len(self.reasons)} of {many(n, 'check')}"
        return f"holds in {n} of {many(n, 'check')}"

    @property
    def sentence(self) -> str:
        """What the badge stands for, with the numbers."""
        if not self.variants:
            if self.audited:
                return "The audit has no variant of the analysis with both layers."
            return "No audit has checked yet whether an artefact could have made this similarity."
        others = [(SAYS[name], rsa) for name, rsa in self.variants if name != CONTROL]
        parts = []
        if others:
            low, high = (number(end(rsa for _, rsa in others)) for end in (min, max))
            span = low if low == high else f"between {low} and {high}"
            parts.append(f"{span} {listed([says for says, _ in others])}")
        parts += [f"{number(rsa)} {SAYS[name]}" for name, rsa in self.variants if name == CONTROL]
        return (
            f"RSA is {', and '.join(parts)}. Checked is how alike the two layers are, not which "
            "features make them so."
        )


@dataclass(frozen=True)
class Finding:
    """What is found about two layers.

    Attributes
    ----------
    why : their similarity as a sum over the features, with intervals where there are any
    checked : whether it holds in the variants of the audit
    """

    why: Explanation
    checked: Checked

    @property
    def headline(self) -> str:
        """The finding in one or two sentences; empty where the audit changes it."""
        return "" if self.checked.verdict == "changes" else self.why.headline

    @property
    def instead(self) -> str:
        """What stands where there is no headline; empty where there is one."""
        if self.headline:
            return ""
        a, b = self.why.called
        return f"No finding about {a} and {b}."

    @property
    def why_not(self) -> str:
        """Why there is no headline; empty where there is one."""
        if self.headline:
            return ""
        rsa = number(self.why.value)
        reasons = "; ".join(self.checked.reasons)
        return f"Their RSA of {rsa} does not stand up to the audit: {reasons}."


def check(audit: Audit | None, a: Layer, b: Layer) -> Checked:
    """What an audit says of the RSA correlation of two layers, in either order.

    What counts as a change are the flags of `mlem_core.robustness.flags`, whose limits are
    conventions: a verdict "holds" is no proof.
    """
    if audit is None:
        return Checked()
    pairs = audit.pairs
    rows = pairs.iloc[:0]
    for first, second in ((a, b), (b, a)):
        same = (pairs["model_a"] == first[0]) & (pairs["layer_a"] == first[1])
        same &= (pairs["model_b"] == second[0]) & (pairs["layer_b"] == second[1])
        rows = pairs[same] if same.any() else rows
    flagged = flags(replace(audit, changes=audit.changes.iloc[:0], pairs=rows))
    return Checked(
        tuple(zip(rows["variant"], rows["rsa"].astype(float), strict=True)),
        tuple(flagged.loc[flagged["measure"] == "rsa", "reason"]),
        audited=True,
    )
