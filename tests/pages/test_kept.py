"""What pages keep from one redraw to the next: of each selection its own, and not without end."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlem_core import figures
from mlem_core.analysis.selection import Selection
from mlem_core.base.errors import InputError
from mlem_core.base.labels import Names
from mlem_core.figures.naming import naming
from mlem_core.inference.explanation import explain
from mlem_core.robustness import audit, multiverse
from mlem_core.robustness.claims import Claim, by_choice, curve
from mlem_core.robustness.finding import Checked, check
from mlem_core.robustness.flags import flags, marked, summary
from mlem_core.robustness.variants import CONTROL, SAYS
from mlem_core.storage.store import Store
from mlem_core.tasks import examples, reading
from pages.parts import audited, explained, stored
from pages.parts import reading as uploaded
from pages.parts.view import View, _results
from pages.trust import audit as trust_audit
from pages.trust import claims as trust_claims

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
    trust_audit._said.clear()
    trust_claims._curve.clear()


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


NAMES = (Names(), Names(models={"mini-gpt2": "Model *one*"}, features={"tense": "Zeit"}))


def test_the_map_of_an_audit_is_kept_for_each_place_and_its_names(tmp_path: Any) -> None:
    found = audit.find(examples.example(), Store(tmp_path))
    assert found is not None
    drawn = set()
    for place in ("/one/example", "/two/example", "/one/example"):
        for names in NAMES:
            with naming(names):
                flagged = flags(found, names)
                new = figures.audit_map(
                    found.layers, found.changes, marked(flagged), SAYS, CONTROL
                ).to_json()
                kept = trust_audit._said(place, repr(names), names, found)
                figures.on_paper(kept[2], figures.Paper())  # what is saved leaves it as it is
                again = trust_audit._said(place, repr(names), names, found)
            assert kept[0].equals(flagged) and kept[1] == summary(found, names)
            assert kept[2].to_json() == again[2].to_json() == new and again[2] is kept[2]
            drawn.add(id(kept[2]))
    assert len(drawn) == 4


def test_the_curve_of_a_claim_is_kept_for_each_place_claim_and_names(tmp_path: Any) -> None:
    example = examples.example()
    pair = example.most_alike()
    found = multiverse.find(example, pair, Store(tmp_path))
    assert found is not None
    claims = [Claim("alike", pair, threshold=at) for at in (0.2, 0.9)]
    drawn = set()
    for place in ("/one/example", "/two/example", "/one/example"):
        for claim in claims:
            for names in NAMES:
                with naming(names):
                    table = curve(claim, found)
                    said = claim.named(names)
                    new = figures.specification_curve(table, found.dimensions, said).to_json()
                    asked = repr((claim, names))
                    kept = trust_claims._curve(place, asked, claim, found, names)
                assert kept[0].equals(table) and kept[1].equals(by_choice(claim, found))
                assert kept[2].to_json() == new
                drawn.add(id(kept[2]))
    assert len(drawn) == 8


PAGES = Path(stored.__file__).parents[1]


def test_nothing_is_kept_but_by_the_store() -> None:
    """A cache without the store in its keys would show one visitor what is another's."""
    through, beside = 0, []
    for path in [PAGES.parent / "app.py", *PAGES.rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = getattr(node, "attr", getattr(node, "id", getattr(node, "name", "")))
            if name == "kept" and isinstance(node, ast.Attribute):
                through += 1
            elif str(name).startswith("cache_") or name == "experimental_memo":
                beside.append((path.name, name))
    assert beside == [("stored.py", "cache_data"), ("stored.py", "cache_resource")]
    assert through >= 24


@pytest.mark.parametrize("copied", [False, True])
def test_what_is_kept_for_one_visitor_never_answers_another(
    copied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [Store(tmp_path / name) for name in ("one", "two")]
    made: list[tuple[str, str, str]] = []

    @stored.kept(8, copied=copied)
    def found(job_id: str, _of: str, part: str = "") -> list[str]:
        made.append((stored.store().root.name, job_id, part))
        return [*made[-1]]

    for _ in range(2):
        for here in stores:
            monkeypatch.setattr(stored, "store", lambda here=here: here)
            for job_id, part in (("a", ""), ("b", ""), ("a", "x")):
                assert found(job_id, str(len(made)), part=part) == [here.root.name, job_id, part]
    assert len(made) == 6
    assert (found("a", "") is found("a", "")) is not copied
    monkeypatch.setattr(stored, "store", lambda: stores[0])
    for n in (8, 8):  # what is forgotten of one store stays for the other
        assert found("a", "") == ["one", "a", ""] and len(made) == n
    found.clear("a", "")
    assert found("a", "") and len(made) == 9
    monkeypatch.setattr(stored, "store", lambda: stores[1])
    assert found("a", "") == ["two", "a", ""] and len(made) == 9
    selection = Selection(("a", "b"), (("m", 1), ("n", 2)), "ridge", False)
    for at, here in enumerate(stores):
        monkeypatch.setattr(stored, "store", lambda here=here: here)
        analysis: Any = Counted()
        assert _results("example", selection, analysis) == (selection,), at
        assert analysis.asked == [selection], at


def test_a_file_is_read_once_and_one_that_cannot_be_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def read(what: str, request: Any, root: Path) -> str:
        asked.append(request["path"])
        if request["path"] != "good":
            raise (reading.Broken if request["path"] == "killed" else InputError)("sentence")
        return what

    monkeypatch.setattr(reading, "read", read)
    here = Store(tmp_path)
    monkeypatch.setattr(stored, "store", lambda: here)
    for _ in range(2):
        assert uploaded.read("table", path="good") == "table"
        for path in ("bad", "killed"):
            with pytest.raises(InputError, match="sentence"):
                uploaded.read("table", path=path)
    # What is no fault of the file is tried again.
    assert asked == ["good", "bad", "killed", "killed"]
