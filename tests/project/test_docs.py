"""The docs: links lead somewhere, the gallery draws, the tutorial runs, the site has every page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import docs_docstrings
import docs_site
import gallery
import pytest
import tutorial
import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *(ROOT / path for path in docs_site.ELSEWHERE)])
NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"
LINK = re.compile(r"\]\(([^)\s]+)\)")


def text_of(path: Path) -> str:
    """Without blocks of code, which may hold brackets of their own."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(path: Path) -> set[str]:
    """Those of a page's headings, as forges and the site make them."""
    titles = re.findall(r"^#+ (.+)$", text_of(path), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def broken(path: Path, text: str) -> Iterator[str]:
    """The links of a page that lead nowhere."""
    for link in LINK.findall(text):
        target, _, anchor = link.partition("#")
        if ":" in target:
            continue
        there = (path.parent / target).resolve() if target else path
        if not there.exists() or (
            anchor and there.suffix == ".md" and anchor not in anchors(there)
        ):
            yield f"{path.relative_to(ROOT)}: {link}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    assert not list(broken(path, text_of(path)))


def test_a_broken_link_would_be_found() -> None:
    text = "[a](why.md) [b](why.md#nowhere) [c](../README.md#models) [d](gone.md) [e](https://x.y)"
    found = list(broken(ROOT / "docs" / "audit.md", text))
    assert found == ["docs/audit.md: why.md#nowhere", "docs/audit.md: gone.md"]


def nav() -> list[str]:
    def leaves(item: object) -> Iterator[str]:
        if isinstance(item, str):
            yield item
        for part in item.values() if isinstance(item, dict) else item if item != str(item) else ():
            yield from leaves(part)

    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return list(leaves(site["nav"]))


def test_the_site_has_every_page_once() -> None:
    paths = [str(path.relative_to(ROOT)) for path in (*PAGES, NOTEBOOK)]
    assert sorted(nav()) == sorted(filter(None, map(docs_site.site_path, paths)))


def test_links_are_turned_into_those_of_the_site(caplog: pytest.LogCaptureFixture) -> None:
    turned = docs_site.turned
    assert turned("[w](docs/why.md#a)", "README.md") == "[w](why.md#a)"
    assert turned("![p](docs/images/why.png)", "README.md") == "![p](images/why.png)"
    assert turned("[s](../README.md#models)", "docs/models.md") == "[s](index.md#models)"
    assert turned("[w](../why.md)", "docs/validation/README.md") == "[w](../why.md)"
    assert turned("[d](../examples/digits/README.md)", "docs/brain.md") == "[d](examples/digits.md)"
    assert turned("[t](docs/tutorial.ipynb)", "README.md") == "[t](tutorial.md)"
    assert turned("[b](#top) [w](https://a.b/c)", "README.md") == "[b](#top) [w](https://a.b/c)"
    assert turned("[`LICENSE`](LICENSE)", "README.md") == "`LICENSE`"
    assert turned("[rows](benchmarks/results)", "README.md") == "rows (`benchmarks/results`)"
    code = "```\n[x](gone.md)\n```"
    assert turned(code, "README.md") == code and not caplog.messages
    turned("[x](gone.txt)", "README.md")
    assert caplog.messages == ["README.md has a link to gone.txt, which is not there"]


def test_docstrings_of_the_house_become_numpys() -> None:
    house = (
        "What it does.\n\nParameters\n----------\na, b : two layers\n    of one model\n"
        "c : a third\n\n"
        "Returns\n-------\nmodel, layer\n\nRaises\n------\nInputError\n    Too few.\n"
    )
    assert docs_docstrings.as_numpy(house) == (
        "What it does.\n\nParameters\n----------\na, b\n    two layers\n    of one model\nc\n"
        "    a third\n\n**Returns** model, layer\n\nRaises\n------\nInputError\n    Too few."
    )


def test_the_api_page_names_what_the_package_names() -> None:
    import mlem_core

    named = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs" / "api.md").read_text("utf-8"), re.M)
    assert {*mlem_core.__all__} <= {name.rpartition(".")[2] for name in named}


def test_the_code_of_the_gallery_draws_its_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path))
    drawn = dict(gallery.drawn())
    assert all(len(figure.data) for figure in drawn.values())
    images = ROOT / "docs" / "images" / "gallery"
    assert set(drawn) == set(images.glob("*.png")) and len(drawn) >= 13


def test_the_tutorial_runs_and_says_what_it_showed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chromium_path: str
) -> None:
    import nbformat

    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "work").mkdir()
    new, kept = tutorial.executed(tmp_path / "work"), nbformat.read(NOTEBOOK, as_version=4)
    written = {path.name for path in (tmp_path / "work").iterdir()}
    assert {"my.csv", "profiles.pdf", "why.pdf", "tables"} <= written

    def texts(notebook: nbformat.NotebookNode) -> list[str]:
        outputs = [one for cell in notebook.cells for one in cell.get("outputs", [])]
        return [one.get("text") or one["data"]["text/plain"] for one in outputs]

    # The words are the same on every machine; the last digits of numbers need not be.
    def words(shown: list[str]) -> list[str]:
        return re.sub(r"[-−]?[\d.]+|\s+", " ", "\n".join(shown)).split()

    assert words(texts(new)) == words(texts(kept))
    assert "part of speech" in texts(new)[-1]
