"""What pages keep from one redraw to the next: of each store and selection its own."""

import ast
from pathlib import Path

import pytest

from mlem_core.storage.store import Store
from pages.parts import stored


def test_nothing_is_kept_but_by_the_store():
    """A cache of one's own would tell neither selections nor stores apart."""
    pages, beside = Path(stored.__file__).parents[1], []
    for path in [pages.parent / "app.py", *pages.rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = getattr(node, "attr", getattr(node, "id", getattr(node, "name", "")))
            if str(name).startswith("cache_") or name == "experimental_memo":
                beside.append((path.name, name))
    assert beside == [("stored.py", "cache_data"), ("stored.py", "cache_resource")]


@pytest.mark.parametrize("copied", [False, True])
def test_what_is_kept_of_one_store_never_answers_for_another(copied, tmp_path):
    made: list[tuple[str, str, str]] = []

    @stored.kept(8, copied=copied)
    def found(store, job_id, _of, part=""):
        made.append((store.root.name, job_id, part))
        return [*made[-1]]

    for _ in range(2):
        for here in (Store(tmp_path / name) for name in ("one", "two")):
            for job_id, part in (("a", ""), ("b", ""), ("a", "x")):
                one = found(here, job_id, str(len(made)), part=part)
                assert one == [here.root.name, job_id, part]
    assert len(made) == 6
    assert (found(here, "a", "") is found(here, "a", "")) is not copied
