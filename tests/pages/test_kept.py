"""What pages keep from one redraw to the next: of each visitor and selection its own."""

import ast
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock, call

import pytest

from mlem_core.analysis.selection import Selection
from mlem_core.storage.store import Store
from pages.parts import stored
from pages.parts.choices import History
from pages.parts.view import _results


def test_each_selection_has_results_of_its_own():
    one = Selection(("a", "b"), (("m", 1), ("n", 2)), "ridge", False)
    others = [
        replace(one, features=("a",)),
        replace(one, features=("b", "a")),
        replace(one, features=("a, b",)),
        replace(one, layers=(("m", 12), ("n", 2))),
        replace(one, estimator="ridge-rank"),
        replace(one, interactions=True),
    ]
    results_of = Mock(side_effect=lambda selection: (selection,))
    analysis = Mock(results_of=results_of, kept=lambda *of: None)
    for selection in (one, *others, one, *others):
        assert _results("job", selection, analysis) == (selection,)
    assert results_of.call_args_list == [call(each) for each in (one, *others)]
    _results("another job", one, analysis)
    assert results_of.call_count == 2 + len(others)


def test_nothing_is_kept_but_by_the_store():
    """A cache without the store in its keys would show one visitor what is another's."""
    pages, beside = Path(stored.__file__).parents[1], []
    for path in [pages.parent / "app.py", *pages.rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = getattr(node, "attr", getattr(node, "id", getattr(node, "name", "")))
            if str(name).startswith("cache_") or name == "experimental_memo":
                beside.append((path.name, name))
    assert beside == [("stored.py", "cache_data"), ("stored.py", "cache_resource")]


@pytest.mark.parametrize("copied", [False, True])
def test_what_is_kept_for_one_visitor_never_answers_another(copied, tmp_path, monkeypatch):
    made: list[tuple[str, str, str]] = []

    @stored.kept(8, copied=copied)
    def found(job_id, _of, part=""):
        made.append((stored.store().root.name, job_id, part))
        return [*made[-1]]

    for _ in range(2):
        for here in (Store(tmp_path / name) for name in ("one", "two")):
            monkeypatch.setattr(stored, "store", lambda here=here: here)
            for job_id, part in (("a", ""), ("b", ""), ("a", "x")):
                assert found(job_id, str(len(made)), part=part) == [here.root.name, job_id, part]
    assert len(made) == 6
    assert (found("a", "") is found("a", "")) is not copied


HELD = ("analysis", "features", "a", "b")


def test_back_takes_nothing_that_no_address_holds():
    history = History()
    history.arrive("home", {}, HELD, back=False)
    history.choose({"stimuli": ["mine.csv"]})
    history.arrive("home", {"a": ["m:3"]}, HELD, back=True)
    assert history.state == {"stimuli": ["mine.csv"], "a": ["m:3"]}


def test_an_address_of_before_the_last_choice_does_not_undo_it():
    """The browser had not heard of the choice, unless it went back."""
    history = History()
    old = {"analysis": ["example"]}
    new = {**old, "features": ["tense"]}
    history.arrive("explore", old, HELD, back=False)
    history.choose({"features": ["tense"]})
    history.said = new
    history.arrive("explore", old, HELD, back=False)
    assert history.state["features"] == ["tense"]
    history.said = new
    history.arrive("explore", old, HELD, back=True)
    assert "features" not in history.state
