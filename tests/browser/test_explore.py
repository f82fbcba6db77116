"""Explore: its tabs, what they share, and the addresses that lead to them."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from driving import App, explore, picture, settled, traces
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(
    ("address", "there"),
    [
        ("profiles", r"/explore\?.*tab=profiles"),
        ("similarity", r"/explore\?"),
        ("compare", r"/explore\?.*look=features"),
        ("why", r"/explore\?"),
        ("stimuli", r"/explore\?.*tab=stimuli"),
        ("robustness", r"/trust\?"),
    ],
)
def test_the_former_addresses_lead_on_with_all_that_they_say(
    app: App, page: Page, address: str, there: str
) -> None:
    page.goto(f"{app.url}/{address}?analysis=example&a=minilm:1&features=tense&features=number")
    page.wait_for_url(re.compile(there + ".*"))
    page.wait_for_url(re.compile("features=tense.*features=number"))
    traces(page)
    settled(page)
    assert "a=minilm%3A1" in page.url


def test_a_pair_is_the_same_in_every_tab(app: App, page: Page) -> None:
    page.goto(f"{app.url}/explore?analysis=example&a=minilm:3&b=smollm2:11&look=features")
    expect(page.get_by_text("FI in smollm2 layer 11")).to_be_visible()
    for tab in ("Profiles", "All layers", "Pairs of layers"):
        explore(page, tab)
        traces(page)
        settled(page)
        picture(page, f"explore-{tab.partition(' ')[0].lower()}")
    expect(page.get_by_text("FI in smollm2 layer 11")).to_be_visible()


def test_a_surprise_is_a_click_away(app: App, page: Page) -> None:
    page.goto(f"{app.url}/explore?analysis=example")
    traces(page, 1)
    settled(page)
    page.get_by_text("Surprises: where the two similarities").click()
    expect(page.get_by_text("More alike by distances than by features")).to_be_visible()
    settled(page)
    picture(page, "surprises")
    first = page.get_by_role("button", name=re.compile("RSA 0.* of pairs.*τ")).first
    said = re.search(r"(\S+) layer (\d+) and (\S+) layer (\d+): RSA (0\.\d\d)", first.inner_text())
    assert said is not None
    first.click()
    a, b = (quote(f"{said[k]}:{said[k + 1]}", safe="") for k in (1, 3))
    page.wait_for_url(re.compile(f"a={a}.*b={b}"))
    headline = f"{said[1]} layer {said[2]} and {said[3]} layer {said[4]}"
    expect(page.get_by_role("heading", name=headline)).to_be_visible()


def test_the_example_shows_the_pairs_behind_its_finding_at_once(app: App, page: Page) -> None:
    page.goto(f"{app.url}/explore?analysis=example")
    traces(page, 1)
    settled(page)
    page.get_by_text("The pairs of stimuli behind it").click()
    expect(page.get_by_text("The 8 pairs that add most of the term part of speech")).to_be_visible()


def test_docs_papers_and_glossary_are_a_click_from_every_screen(app: App, page: Page) -> None:
    for address in ("", "new", "explore", "trust"):
        page.goto(f"{app.url}/{address}")
        page.get_by_role("link", name="Glossary").click()
        expect(page.get_by_role("heading", name="Glossary")).to_be_visible()
        expect(page.get_by_text("Held-out ρ.")).to_be_visible()
    page.get_by_role("link", name="Papers, cite, source").click()
    paper = page.get_by_role("link", name="arXiv:2406.12620")
    assert paper.get_attribute("href") == "https://arxiv.org/abs/2406.12620"
    expect(page.get_by_text("@article{salle2024")).to_be_visible()
    page.get_by_role("link", name="Method").click()
    expect(page.get_by_role("heading", name="The terms of an RSA correlation")).to_be_visible()
    # Each is an address, and Back leads from one to the other.
    assert "page=why" in page.url
    page.go_back()
    expect(page.get_by_text("@article{salle2024")).to_be_visible()
    page.go_forward()
    expect(page.get_by_role("heading", name="The terms of an RSA correlation")).to_be_visible()
    # Links between the pages stay in the app.
    assert page.locator('[data-testid=stMain] a[href*="?page="]').count() > 0
    picture(page, "docs")


def test_a_similarity_without_terms_says_so_where_those_of_rsa_stand(
    app: App, page: Page, done: str
) -> None:
    page.goto(f"{app.url}/explore?{done}&a=minilm:1&b=minilm:3&similarity=procrustes")
    page.get_by_role("button", name="Compute Procrustes").click()
    says = "is no sum over pairs of stimuli, so it has no terms by feature; RSA, CKA and overlap"
    expect(page.get_by_text(says).first).to_be_visible()
    expect(page.get_by_text("What follows is RSA.").first).to_be_visible()
    own = "The held-out Procrustes similarity of minilm layer 1 and minilm layer 3 is 0"
    expect(page.get_by_role("heading", name=own)).to_be_visible()
    page.get_by_role("button", name="Add its confidence interval").click()
    expect(page.get_by_text(re.compile("How sure: .* would put it between 0"))).to_be_visible()
    picture(page, "procrustes")
    headline = re.compile(r"minilm layer 1 and minilm layer 3 are alike \(RSA 0.*\)")
    expect(page.get_by_role("heading", name=headline)).to_be_visible()
    assert "cells by rotation (Procrustes)" in {trace["name"] for trace in traces(page, 0)}
    explore(page, "All layers")
    expect(page.get_by_text("adds up to the mean RSA correlation")).to_be_visible()
    expect(page.get_by_text(says).first).to_be_visible()


def test_layers_are_compared_by_another_similarity_when_asked(
    app: App, page: Page, done: str
) -> None:
    page.goto(f"{app.url}/explore?{done}&a=minilm:1&b=minilm:3")
    traces(page, 1)
    settled(page)
    page.get_by_role("combobox", name="By distances").click()
    page.get_by_role("option", name="CKA: debiased, linear").click()
    page.wait_for_url(re.compile("similarity=cka"))
    expect(page.get_by_text("what is shown is RSA")).to_be_visible()
    page.get_by_role("button", name="Compute CKA").click()
    headline = re.compile(r"minilm layer 1 and minilm layer 3 are alike \(CKA 0.*\)")
    expect(page.get_by_role("heading", name=headline)).to_be_visible()
    assert "cells by squared distances" in {trace["name"] for trace in traces(page, 0)}
    settled(page)
    picture(page, "another-similarity")
    explore(page, "All layers")
    expect(page.get_by_text("adds up to the mean debiased linear CKA")).to_be_visible()
    picture(page, "another-similarity-all-layers")
    explore(page, "Pairs of layers")
    page.get_by_role("radio", name="Features").click()
    expect(page.get_by_text("By squared distances (CKA)")).to_be_visible()
    page.get_by_role("radio", name="Why alike").click()
    settled(page)
    # Intervals of these two, by blocks that are left out.
    page.get_by_role("button", name="Add confidence intervals").last.click()
    expect(
        page.get_by_text(re.compile("their CKA between 0.* and 0.*95 % intervals"))
    ).to_be_visible()


def test_two_layers_are_told_to_be_alike_in_the_features_or_in_the_rest(
    app: App, page: Page
) -> None:
    page.goto(f"{app.url}/explore?analysis=example&a=minilm:3&b=smollm2:11&look=why")
    expect(page.get_by_text("Alike in what?", exact=True)).to_be_visible()
    for name in ("Alike in the features (S_feat)", "Alike in the rest (S_rest)"):
        expect(page.get_by_test_id("stMetric").filter(has_text=name)).to_be_visible()
    expect(page.get_by_test_id("stMetric").filter(has_text="Transfer from ")).to_have_count(2)
    expect(page.get_by_text("computed between different stimuli")).to_be_visible()
    expect(page.get_by_text("is still in it.")).to_be_visible()


def test_what_the_two_similarities_mix_is_a_matrix_of_its_own(app: App, page: Page) -> None:
    page.goto(f"{app.url}/explore?analysis=example&a=minilm:3&b=smollm2:11&partial=ratio")
    traces(page, 1)
    settled(page)
    page.get_by_text("Alike in what? In the features, in the rest, by transfer").click()
    expect(page.get_by_text("What the two matrices above mix, apart.")).to_be_visible()
    settled(page)
    picture(page, "similar-in")
    assert "partial=ratio" in page.url
