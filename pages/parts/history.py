"""What was chosen at each address of a session, so that Back, Forward and Undo bring it back.

Streamlit runs a page again when the user goes back to an address of it, and says of a run whether
that is why. Where another run finds in the address what the last one did not leave there, the
browser had not heard of that yet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

State = dict[str, list[str]]
Query = tuple[tuple[str, tuple[str, ...]], ...]

MOST_KEPT = 200  # addresses, and steps that can be undone


@dataclass
class History:
    """The choices of a session and how they came about.

    Attributes
    ----------
    state : what is chosen now; what has no entry is at its default
    at : page and query of the address as the last run left it
    shown : what was chosen at each address
    earlier : what was chosen before each choice, the latest last
    """

    state: State = field(default_factory=dict)
    at: tuple[str, Query] | None = None
    shown: dict[tuple[str, Query], State] = field(default_factory=dict)
    earlier: list[State] = field(default_factory=list)

    def arrive(self, page: str, query: Query, held: Collection[str], *, back: bool) -> bool:
        """Take over what the address says at the beginning of a run.

        Parameters
        ----------
        page : url_path of the page
        query : what its address says
        held : names of the choices that an address of the page holds
        back : whether the user went there by Back or Forward

        Returns whether the user came back to an address of this page, which then stays as it is.
        """
        before = None if self.at is None else self.at[0]
        if (page, query) == self.at:
            return False
        said = {name: list(values) for name, values in query}
        if page != before:
            known = self.shown.get((page, query)) if back else None
            self.state = dict(known) if known is not None else {**self.state, **said}
            return False
        if not back:
            return False  # the browser did not know of the last choice yet
        others = {name: values for name, values in self.state.items() if name not in held}
        self.state = dict(self.shown.get((page, query), {**others, **said}))
        return True

    def leave(self, page: str, query: Query) -> None:
        """The address now is this one."""
        self.at = (page, query)
        self.shown[self.at] = dict(self.state)
        while len(self.shown) > MOST_KEPT:
            self.shown.pop(next(iter(self.shown)))

    def choose(self, chosen: Mapping[str, Sequence[str] | None], *, step: bool = True) -> bool:
        """Set choices; None or nothing is the default. Whether that changes any.

        Parameters
        ----------
        step : whether it is a step that can be undone
        """
        after = {**self.state, **{name: list(values or []) for name, values in chosen.items()}}
        after = {name: values for name, values in after.items() if values}
        if after == self.state:
            return False
        if step:
            self.earlier = [*self.earlier, self.state][-MOST_KEPT:]
        self.state = after
        return True

    def undo(self, names: Collection[str]) -> dict[str, list[str]] | None:
        """What the last choice of any of these names has changed of them, as it was before.

        An empty list is the default; None where there is nothing to undo. The step is forgotten.
        """
        while self.earlier:
            before = self.earlier.pop()
            changed = {
                name: before.get(name, [])
                for name in names
                if before.get(name, []) != self.state.get(name, [])
            }
            if changed:
                return changed
        return None

    def can_undo(self, names: Collection[str]) -> bool:
        """Whether there is anything to undo among these names."""
        return any(
            before.get(name) != self.state.get(name) for before in self.earlier for name in names
        )
