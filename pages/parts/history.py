"""History of a session's choices, so that Back, Forward and Undo bring back what was chosen.

Streamlit runs a page again when the user goes back to an address of it, and says of a run whether
that is why. Where another run finds in the address what the last one did not leave there, the
browser had not heard of that yet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

State = dict[str, list[str]]

MOST_KEPT = 200  # steps that can be undone


@dataclass
class History:
    """The choices of a session and how they came about.

    Attributes
    ----------
    state : what is chosen now; what has no entry is at its default
    page : url_path of the page that is shown
    held : names of the choices that an address of the page holds
    said : what its address says, as the last run left it
    earlier : what was chosen before each choice, the latest last
    """

    state: State = field(default_factory=dict)
    page: str | None = None
    held: Collection[str] = ()
    said: State = field(default_factory=dict)
    earlier: list[State] = field(default_factory=list)

    def arrive(self, page: str, said: State, held: Collection[str], *, back: bool) -> None:
        """Take over what the address says at the beginning of a run.

        Parameters
        ----------
        page, said, held : as the attributes
        back : whether the user went there by Back or Forward
        """
        same, as_left = page == self.page, said == self.said
        self.page, self.held, self.said = page, held, said
        if same and (as_left or not back):
            return  # where it is other, the browser did not know of the last choice yet
        # An address of before says all that its page holds; a link says what it changes.
        kept = {name: values for name, values in self.state.items() if name not in held}
        self.state = {**(kept if back else self.state), **said}

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
        """Former values of what the last choice of any of these names has changed.

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
