"""Back, Forward and Undo, as a session remembers them: addresses in, choices out."""

from __future__ import annotations

import pytest

from pages.parts import history as histories
from pages.parts.history import History, Query

HELD = ("analysis", "features", "a", "b")


def query(history: History, held: tuple[str, ...] = HELD) -> Query:
    """What the address says once it says all that is chosen."""
    return tuple((n, tuple(history.state[n])) for n in sorted(held) if n in history.state)


def visit(history: History, page: str, said: Query | None = None) -> bool:
    """A run that finds this in the address (None: what the last one left) and fills it up."""
    at = history.at
    came_back = history.arrive(page, said if said is not None else at[1] if at else (), HELD)
    history.leave(page, said if came_back and said is not None else query(history))
    return came_back


def choose(history: History, **chosen: str) -> Query:
    """A choice, long enough ago; the address that it leads to."""
    history.choose({name: [value] for name, value in chosen.items()})
    assert history.at is not None
    history.leave(history.at[0], query(history))
    history.chosen_at -= 10
    return history.at[1]


def test_back_and_forward_bring_back_what_was_shown() -> None:
    history = History()
    visit(history, "explore", (("analysis", ("example",)),))
    first = history.at[1] if history.at else ()
    second = choose(history, features="tense")
    third = choose(history, a="m:1", b="m:2")
    assert visit(history, "explore", second)
    assert history.state == {"analysis": ["example"], "features": ["tense"]}
    assert visit(history, "explore", first)
    assert history.state == {"analysis": ["example"]}
    assert visit(history, "explore", third)
    assert history.state["a"] == ["m:1"] and history.state["b"] == ["m:2"]


def test_another_page_takes_what_is_chosen_along() -> None:
    history = History()
    visit(history, "explore", (("analysis", ("example",)),))
    choose(history, a="m:1")
    assert not visit(history, "trust", ())
    assert history.state == {"analysis": ["example"], "a": ["m:1"]}
    # The empty address of before it was filled: the page stays as it is, and does not push again.
    history.shown[("trust", ())] = dict(history.state)
    assert visit(history, "trust", ())
    assert history.state["a"] == ["m:1"]


def test_what_an_address_does_not_hold_stays() -> None:
    history = History()
    visit(history, "home", ())
    history.choose({"stimuli": ["mine.csv"]})
    history.chosen_at -= 10
    assert visit(history, "home", (("a", ("m:3",)),))
    assert history.state == {"stimuli": ["mine.csv"], "a": ["m:3"]}


def test_an_address_of_before_the_last_choice_does_not_undo_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = History()
    visit(history, "explore", (("analysis", ("example",)),))
    old = history.at[1] if history.at else ()
    choose(history, features="tense")
    now = history.chosen_at + 0.2
    monkeypatch.setattr(histories.time, "monotonic", lambda: now)
    assert not visit(history, "explore", old)
    assert history.state["features"] == ["tense"]


def test_undo_takes_back_one_step_after_the_other() -> None:
    history = History()
    visit(history, "explore", (("analysis", ("example",)),))
    assert not history.can_undo(HELD)
    choose(history, features="tense")
    choose(history, a="m:1", b="m:2")
    history.choose({"step": ["roles"]})  # not of these names
    assert history.can_undo(HELD)
    assert history.undo(HELD) == {"a": [], "b": []}
    history.choose({"a": None, "b": None}, step=False)
    assert history.undo(HELD) == {"features": []}
    history.choose({"features": None}, step=False)
    assert history.undo(HELD) is None and not history.can_undo(HELD)
    assert history.state == {"analysis": ["example"], "step": ["roles"]}


def test_what_changes_nothing_is_no_step() -> None:
    history = History()
    assert history.choose({"a": ["m:1"]}) and not history.choose({"a": ["m:1"]})
    assert not history.choose({"b": None}) and len(history.earlier) == 1


def test_no_more_is_kept_than_has_to_be() -> None:
    history = History()
    visit(history, "explore", ())
    for n in range(3 * histories.MOST_KEPT):
        choose(history, a=f"m:{n}")
    assert len(history.shown) == len(history.earlier) == histories.MOST_KEPT
