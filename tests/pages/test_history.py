"""Back, Forward and Undo, as a session remembers them: addresses in, choices out."""

from __future__ import annotations

from pages.parts import history as histories
from pages.parts.history import History, Query

HELD = ("analysis", "features", "a", "b")


def query(history: History, held: tuple[str, ...] = HELD) -> Query:
    """What the address says once it says all that is chosen."""
    return tuple((n, tuple(history.state[n])) for n in sorted(held) if n in history.state)


def visit(history: History, page: str, said: Query = ()) -> None:
    """A run that was opened by a link, finds this in the address and fills it up."""
    assert not history.arrive(page, said, HELD, back=False)
    history.leave(page, query(history))


def go_back(history: History, page: str, said: Query) -> bool:
    """A run after Back or Forward to this address; whether the address stays as it is."""
    stays = history.arrive(page, said, HELD, back=True)
    history.leave(page, said if stays else query(history))
    return stays


def choose(history: History, **chosen: str) -> Query:
    """A choice; the address that it leads to."""
    history.choose({name: [value] for name, value in chosen.items()})
    assert history.at is not None
    history.leave(history.at[0], query(history))
    return history.at[1]


def test_back_and_forward_bring_back_what_was_shown() -> None:
    history = History()
    visit(history, "explore", (("analysis", ("example",)),))
    first = history.at[1] if history.at else ()
    second = choose(history, features="tense")
    third = choose(history, a="m:1", b="m:2")
    assert go_back(history, "explore", second)
    assert history.state == {"analysis": ["example"], "features": ["tense"]}
    assert go_back(history, "explore", first)
    assert history.state == {"analysis": ["example"]}
    assert go_back(history, "explore", third)
    assert history.state["a"] == ["m:1"] and history.state["b"] == ["m:2"]


def test_another_page_takes_what_is_chosen_along() -> None:
    history = History()
    visit(history, "explore", (("analysis", ("example",)),))
    choose(history, a="m:1")
    visit(history, "trust")
    assert history.state == {"analysis": ["example"], "a": ["m:1"]}
    # Once more by its link: the page stays as it is.
    visit(history, "trust")
    assert history.state["a"] == ["m:1"]


def test_back_over_pages_shows_what_the_page_showed() -> None:
    history = History()
    visit(history, "home")
    visit(history, "explore", (("analysis", ("example",)),))
    explore = history.at[1] if history.at else ()
    visit(history, "trust")
    choose(history, a="m:1")
    go_back(history, "explore", explore)
    assert history.state == {"analysis": ["example"]}
    go_back(history, "home", ())
    assert history.state == {}


def test_what_an_address_does_not_hold_stays() -> None:
    history = History()
    visit(history, "home")
    history.choose({"stimuli": ["mine.csv"]})
    assert go_back(history, "home", (("a", ("m:3",)),))
    assert history.state == {"stimuli": ["mine.csv"], "a": ["m:3"]}


def test_an_address_of_before_the_last_choice_does_not_undo_it() -> None:
    """The browser had not heard of the choice, unless it went back."""
    history = History()
    visit(history, "explore", (("analysis", ("example",)),))
    old = history.at[1] if history.at else ()
    choose(history, features="tense")
    visit(history, "explore", old)
    assert history.state["features"] == ["tense"]
    assert go_back(history, "explore", old)
    assert "features" not in history.state


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
    visit(history, "explore")
    for n in range(3 * histories.MOST_KEPT):
        choose(history, a=f"m:{n}")
    assert len(history.shown) == len(history.earlier) == histories.MOST_KEPT
