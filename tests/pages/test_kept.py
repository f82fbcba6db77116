"""What pages keep from one redraw to the next: of each selection its own, and not without end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mlem_core.analysis.selection import Selection
from mlem_core.inference.explanation import explain
from mlem_core.robustness import audit
from mlem_core.robustness.finding import Checked, check
from mlem_core.storage.store import Store
from mlem_core.tasks import examples
from pages.parts import audited, explained
from pages.parts.view import View, _results

MOST = 256


class Counted:
    """Stands for an analysis: says what it was asked for, and how often."""

    def __init__(self) -> None:
        self.asked: list[Selection] = []

    def results_of(self, selection: Selection) -> tuple[Selection]:
        self.asked.append(selection)
        return (selection,)


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    _results.clear()
    explained._check.clear()


def test_each_selection_has_results_of_its_own() -> None:
    one = Selection(("a", "b"), (("m", 1), ("n", 2)), "ridge", False)
    others = [
        replace(one, features=("a",)),
        replace(one, features=("b", "a")),
        replace(one, features=("a, b",)),
        replace(one, layers=(("m", 1),)),
        replace(one, layers=(("m", 12), ("n", 2))),
        replace(one, estimator="ridge-rank"),
        replace(one, interactions=True),
    ]
    analysis: Any = Counted()
    for selection in (one, *others, one, *others):
        found: Any = _results("job", selection, analysis)
        assert found == (selection,)
    assert analysis.asked == [one, *others]
    _results("another job", one, analysis)
    assert analysis.asked == [one, *others, one]


def test_of_many_selections_the_last_are_kept() -> None:
    analysis: Any = Counted()
    every = [Selection((f"f{n}",), (("m", 0),), "ridge", False) for n in range(MOST + 1)]
    for selection in (*every, *every[:0:-1], every[0]):
        _results("job", selection, analysis)
    assert analysis.asked == [*every, every[0]]


def test_what_the_audit_says_of_two_layers_is_kept_by_analysis_and_layers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    example = examples.example()
    found = audit.find(example, Store(tmp_path))
    assert found is not None
    a, b = example.most_alike()
    pairs = [(a, b), (b, a), (a, example.layers[0])]
    there: dict[str, Any] = {"first": found, "second": None}
    monkeypatch.setattr(audited, "audit", lambda view: there[view.job_id])
    for _ in range(2):
        for one, other in pairs:
            why = explain(example, one, other)
            for job_id, own in there.items():
                view = View(job_id, example, example.select())
                assert explained.checked(view, why).checked == check(own, one, other)
    there["second"] = found  # made meanwhile
    view = View("second", example, example.select())
    assert (
        explained.checked(view, explain(example, a, b)).checked == check(found, a, b) != Checked()
    )
