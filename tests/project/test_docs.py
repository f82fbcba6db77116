"""The docs: links lead somewhere on forges, on the site and in the app; the site has all pages."""

import doctest
import pkgutil
import re
from pathlib import Path

import docs_site
import numpy as np
import pandas as pd
import pytest
import worked_example
from helpers.repository import ROOT
from scipy.spatial.distance import pdist
from scipy.stats import rankdata, spearmanr

import mlem_core
from pages.parts import screens

PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *(ROOT / path for path in docs_site.ELSEWHERE)])
NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"
LINK = re.compile(r"\]\(([^)\s]+)\)")


def text_of(path):
    """Without blocks of code, which may hold brackets of their own."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(path):
    """Those of a page's headings, as forges and the site make them."""
    titles = re.findall(r"^#+ (.+)$", text_of(path), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def broken(path, text):
    """The links of a page that lead nowhere."""
    for link in LINK.findall(text):
        target, _, anchor = link.partition("#")
        if ":" in target:
            continue
        there = (path.parent / target).resolve() if target else path
        titled = anchor and there.suffix == ".md"
        if not there.exists() or (titled and anchor not in anchors(there)):
            yield f"{path.relative_to(ROOT)}: {link}"


def test_every_relative_link_leads_somewhere():
    assert not [link for path in PAGES for link in broken(path, text_of(path))]
    text = "[a](why.md) [b](why.md#nowhere) [c](../README.md#models) [d](gone.md) [e](https://x.y)"
    found = list(broken(ROOT / "docs" / "audit.md", text))
    assert found == ["docs/audit.md: why.md#nowhere", "docs/audit.md: gone.md"]


def test_the_site_has_every_page_once():
    nav = re.findall(r"[\w./-]+\.(?:md|ipynb)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.M)
    paths = [str(path.relative_to(ROOT)) for path in (*PAGES, NOTEBOOK)]
    assert sorted(nav) == sorted(filter(None, map(docs_site.site_path, paths)))


def section(path, title):
    """Text of a page below one of its headings, up to the next heading."""
    return re.split(r"^#+ ", text_of(path).split(f"# {title}\n", 1)[1], flags=re.M)[0]


def test_the_first_day_is_as_long_as_the_page_says():
    """Modules behind the folder of their line, pages that it links, and the README of a folder."""
    page = ROOT / "docs" / "architecture.md"
    text = section(page, "The first day")
    modules, pages = [], {page, ROOT / "mlem_core/extensions/decoding/README.md"}
    folder = ROOT / "mlem_core"
    for name in re.findall(r"`([\w/.]+)`", text):
        if name.endswith("/"):
            folder = ROOT / "mlem_core" / name
        else:
            modules.append(
                next(path / name for path in (folder, ROOT / "mlem_core") if (path / name).exists())
            )
    links = [link.partition("#") for link in LINK.findall(text)]
    pages |= {(page.parent / link).resolve() for link, _, anchor in links if not anchor}
    words = sum(len(path.read_text("utf-8").split()) for path in pages)
    words += len(section(ROOT / "docs" / "why.md", "Second moments of pairs").split())
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in modules)
    told = [int(number.replace(",", "")) for number in re.findall(r"\d,\d{3}", text)]
    assert words <= 6_000 and lines <= 8_000
    np.testing.assert_allclose(told, [words, lines], rtol=0.05)


def test_each_oracle_of_the_list_is_a_test():
    page = (ROOT / "tests" / "README.md").read_text("utf-8")
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", page)
    tests = {path: path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    gone = [
        f"{file}::{name}"
        for file, name in named
        if not any(path.match(file) and f"def {name}(" in text for path, text in tests.items())
    ]
    assert named and not gone


def test_links_are_turned_into_those_of_the_site(caplog):
    turned = docs_site.turned
    assert turned("[w](docs/why.md#a)", "README.md") == "[w](why.md#a)"
    assert turned("[s](../README.md#models)", "docs/models.md") == "[s](index.md#models)"
    assert turned("[w](../why.md)", "docs/validation/README.md") == "[w](../why.md)"
    assert turned("[b](#top) [w](https://a.b/c)", "README.md") == "[b](#top) [w](https://a.b/c)"
    assert turned("[`LICENSE`](LICENSE)", "README.md") == "`LICENSE`"
    assert turned("[rows](benchmarks/results)", "README.md") == "rows (`benchmarks/results`)"
    assert not caplog.messages
    turned("[x](gone.txt)", "README.md")
    (said,) = caplog.messages
    assert "README.md" in said and "gone.txt" in said


@pytest.mark.slow
def test_the_quick_start_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path))
    code = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
    assert code and len(code[1].strip().splitlines()) == 7  # an empty line among them
    exec(code[1], {})
    assert "are similar (RSA .77)" in capsys.readouterr().out


def test_the_worked_example_is_what_explicit_pairs_give():
    """Its numbers stand on the page."""
    one, other = (pdist(layer) for layer in worked_example.LAYERS)
    ranks = pd.DataFrame({"a": rankdata(one), "b": rankdata(other)}) - 8
    codes = worked_example.FEATURES.apply(lambda column: pd.factorize(column)[0])
    differ = {name: pdist(codes[[name]].to_numpy(float)) for name in codes}

    def explained(*names):
        columns = np.column_stack([np.ones(len(ranks)), *(differ[name] for name in names)])
        fitted = columns @ np.linalg.lstsq(columns, ranks["a"], rcond=None)[0]
        return fitted @ ranks["b"] / np.sqrt((ranks**2).sum().prod())

    first, last = codes
    both, alone = explained(first, last), explained(first)
    expected = [(alone + both - explained(last)) / 2, (explained(last) + both - alone) / 2]
    terms = worked_example.terms()["value"]
    rsa = spearmanr(one, other).statistic
    np.testing.assert_allclose(terms, [*expected, rsa - both], atol=1e-12)
    text = (ROOT / "docs" / "worked-example.md").read_text("utf-8")
    for value in (*terms, rsa, both, alone, explained(last)):
        assert f"{value:.3f}"[1:] in text


def test_the_api_page_names_what_the_package_names():
    named = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs" / "api.md").read_text("utf-8"), re.M)
    assert {*mlem_core.__all__} <= {name.rpartition(".")[2] for name in named}
    assert all(pkgutil.resolve_name(name).__doc__ for name in named)


def test_the_pages_of_the_app_are_there_and_link_to_each_other():
    for path in screens._PAGES:
        text = screens._turned((screens.ROOT / path).read_text("utf-8"), path)
        outside_code = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)
        for target in re.findall(r"(?<!!)\[[^][]+\]\(([^)]*)\)", outside_code):
            if target.startswith("?page="):
                assert target.removeprefix("?page=") in screens.docs_pages(), target
            else:
                assert target.startswith(("http", "#")), target


@pytest.mark.slow
@pytest.mark.parametrize("name", mlem_core.__all__)
def test_the_examples_of_what_is_public_run(name, planted, tmp_path, monkeypatch):
    """With an `analysis` and its `store` at hand, in the folder of its files."""
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    for file in ("s.csv", "m.npz"):
        (tmp_path / file).symlink_to(Path(planted.spec.stimuli).with_name(file))
    monkeypatch.chdir(tmp_path)
    given = {one: getattr(mlem_core, one) for one in mlem_core.__all__}
    given |= {"np": np, "pd": pd, "analysis": planted.analysis, "store": planted.store}
    said = given[name].__doc__
    example = doctest.DocTestParser().get_doctest(said, given, name, None, 0)
    report: list[str] = []
    assert example.examples
    doctest.DocTestRunner().run(example, out=report.append)
    assert not report, "".join(report)
