"""The form of a new analysis: any file in few clicks, and nothing is lost or mixed up."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from driving import START, App, picture, run, served, settled, taken, traces, upload
from playwright.sync_api import Browser, Locator, Page, Route, expect

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.data import datasets
from mlem_core.data.added import frequency
from mlem_core.data.stimulus_csv import read_csv

pytestmark = pytest.mark.browser
RUN = 3 * START  # five models, the largest of 30 layers
TREEBANK = Path(datasets.__file__).parent / "sets" / "treebank.conllu"


class Clicks:
    """A user who counts."""

    def __init__(self, page: Page) -> None:
        self.page, self.n = page, 0

    def on(self, target: Locator) -> None:
        target.click()
        self.n += 1
        settled(self.page)

    def button(self, name: str) -> None:
        self.on(self.page.get_by_role("button", name=name, exact=True).first)

    def upload(self, *files: Path) -> None:
        with self.page.expect_file_chooser() as waiting:
            self.page.get_by_test_id("stFileUploaderDropzone").locator("button").click()
        waiting.value.set_files(files)
        self.n += 2  # one more in the dialog
        taken(self.page, waiting.value.element)


def fresh(browser: Browser, address: str, **size: int) -> Page:
    context = browser.new_context(viewport={"width": 1280, "height": 800} | size)
    context.set_default_timeout(START)
    page = context.new_page()
    page.goto(address)
    return page


def job_of(page: Page, app: App) -> AnalysisSpec:
    """What the analysis in the address was asked for."""
    id = re.search(r"analysis=(\w+)", page.url)
    assert id is not None
    spec = (app.cache / "jobs" / id[1] / "spec.json").read_text()
    return AnalysisSpec.from_dict(json.loads(spec))


@pytest.fixture(scope="module")
def excel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 sentences as a German Excel writes them: semicolons, decimal commas, Latin-1, `NA`."""
    whole = datasets.load("probing")
    table = whole.table.assign(Häufigkeit=frequency(whole))
    table = table[table["sentence"].isin(table["sentence"].unique()[:60])]
    numbers = table["Häufigkeit"].map(lambda x: "NA" if np.isnan(x) else f"{x:.2f}")
    table = table.assign(Häufigkeit=numbers.str.replace(".", ","))
    names = ["sentence", "word_index", "Häufigkeit", "part_of_speech", "tense"]
    path = tmp_path_factory.mktemp("excel") / "Wörter.csv"
    text = table[names].to_csv(sep=";", index=False, na_rep="NA", lineterminator="\r\n")
    path.write_bytes(text.encode("latin-1"))
    return path


def test_an_excel_file_to_why_in_nine_clicks(browser: Browser, tmp_path: Path, excel: Path) -> None:
    with served(tmp_path) as app:
        page = fresh(browser, app.url)
        user = Clicks(page)
        user.button("Analyse your own")
        user.upload(excel)
        found = {
            "Separator": "semicolons",
            "Encoding": "Windows-1252",
            "Decimal sign": "comma",
            "Missing-value marks": "NA",
        }
        for label, said in found.items():
            box = page.get_by_role("combobox", name=label)
            expect(box).to_have_value(f"detected: {said}")
        picture(page, "new-read")
        user.on(page.get_by_role("button", name="Next: Roles"))
        expect(page.get_by_role("combobox", name="Role of Häufigkeit")).to_be_visible()
        expect(page.get_by_text(re.compile("'tense' has no value in"))).to_be_visible()
        picture(page, "new-roles")
        user.on(page.get_by_role("button", name="Next: Models"))
        expect(page.get_by_text(re.compile("About .* of disk"))).to_be_visible()
        picture(page, "new-models")
        user.button("Run")
        expect(page.get_by_role("button", name="Look")).to_be_visible(timeout=RUN)
        spec = job_of(page, app)
        user.button("Look")
        finding = page.get_by_text(re.compile("layer .* and .* layer .* are alike .RSA"))
        expect(finding.first).to_be_visible()
        assert page.locator('[data-testid="stAlertContentError"]').count() == 0
        assert user.n <= 9, user.n
        picture(page, "new-why")
        # The upload itself is what was analysed, read as the command line reads it.
        assert Path(spec.stimuli).read_bytes() == excel.read_bytes()
        assert spec.load_stimuli().digest == AnalysisSpec(str(excel)).load_stimuli().digest
        page.context.close()


def test_a_treebank_to_profiles_in_eight_clicks(browser: Browser, tmp_path: Path) -> None:
    sentences = TREEBANK.read_text("utf-8").split("\n\n")[:120]
    files = [tmp_path / f"part-{k}.conllu" for k in (1, 2)]
    for k, path in enumerate(files):
        path.write_text("\n\n".join(sentences[k * 60 : k * 60 + 60]) + "\n\n", "utf-8")
    with served(tmp_path) as app:
        page = fresh(browser, app.url)
        user = Clicks(page)
        user.button("Analyse your own")
        user.upload(*files)
        expect(page.get_by_text(re.compile("part-1.conllu and 1 more: the words"))).to_be_visible()
        expect(page.get_by_text(re.compile("features: upos, ")).first).to_be_visible()
        picture(page, "new-treebank")
        user.button("3 Models")
        user.button("Controlled trio")
        user.button("Run")
        expect(page.get_by_role("button", name="Look")).to_be_visible(timeout=RUN)
        spec = job_of(page, app)
        user.on(page.get_by_role("link", name="Explore", exact=True))
        user.on(page.get_by_role("radio", name="Profiles"))
        assert "upos" in {trace["name"] for trace in traces(page)}
        assert user.n <= 8, user.n
        assert spec.models == ("mini-bert", "mini-gpt2", "mini-mamba")
        assert [path.read_bytes() for path in spec.stimulus_files] == [
            path.read_bytes() for path in files
        ]
        page.context.close()


def test_how_a_file_is_read_can_be_changed(app: App, page: Page, tmp_path: Path) -> None:
    kinds = {"kind": list("ab?cd") * 4, "size": list("xyzz") * 5}
    frame = pd.DataFrame({"text": [f"dogs bark {n}" for n in range(20)], **kinds})
    with pd.ExcelWriter(tmp_path / "book.xlsx") as book:
        pd.DataFrame({"note": ["nothing here"]}).to_excel(book, sheet_name="About", index=False)
        frame.to_excel(book, sheet_name="Data", index=False)
    page.goto(f"{app.url}/new")
    upload(page, tmp_path / "book.xlsx")
    expect(page.get_by_text(re.compile("Run waits, see step 2|Run waits"))).to_be_visible()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()
    choose(page, "Sheet", "Data")
    expect(page.get_by_text("20 stimuli (whole sentences), 2 features: kind, size")).to_be_visible()
    marks = page.get_by_role("combobox", name="Missing-value marks")
    marks.fill("?")
    marks.press("Enter")
    settled(page)
    page.wait_for_url(re.compile("na=%3F"))
    page.get_by_role("button", name="2 Roles").click()
    expect(page.get_by_text(re.compile("'kind' has no value in 4 of 20"))).to_be_visible()
    # An address opens the same form, and other pages lose nothing of it.
    other = fresh(page.context.browser, page.url)
    expect(other.get_by_text(re.compile("'kind' has no value in 4 of 20"))).to_be_visible()
    other.context.close()
    page.get_by_role("link", name="Home").click()
    expect(page.get_by_role("heading", name="MLEM Explorer")).to_be_visible()
    settled(page)
    page.get_by_role("link", name="New analysis").click()
    expect(page.get_by_text(re.compile("'kind' has no value in 4 of 20"))).to_be_visible()


def test_a_file_on_its_way_is_lost_by_no_step_and_waited_for(
    app: App, page: Page, small_csv: Path, tmp_path: Path
) -> None:
    """A slow line: each file arrives when the test lets it."""
    held: list[Route] = []
    page.route("**/_stcore/upload_file/**", lambda route: held.append(route))

    def let_go() -> None:
        # The page says that a file is coming before the browser asks to send it.
        while not held:
            page.wait_for_timeout(50)
        held.pop().continue_()

    page.goto(f"{app.url}/new?models=mini-bert")
    run_button = page.get_by_role("button", name="Run", exact=True)
    expect(run_button).to_be_enabled()
    chooser = page.locator('input[type="file"]')
    chooser.set_input_files(small_csv)
    # The click comes before the browser shows the file.
    page.get_by_role("button", name="2 Roles").click()
    expect(page.get_by_role("combobox", name="Role of tense")).to_be_visible()
    coming = page.get_by_text("A file is on its way")
    expect(coming).to_be_visible()
    expect(page.get_by_role("button", name="Cancel upload of small set.csv")).to_be_visible()
    expect(run_button).to_have_count(0)
    settled(page)
    picture(page, "new-coming")
    let_go()
    expect(page.get_by_role("combobox", name="Role of note")).to_be_visible()
    expect(coming).to_be_hidden()
    expect(page.get_by_text("Runs mini-bert on small_set.csv")).to_be_visible()
    # Those of a step keep the step.
    settled(page)
    page.get_by_role("button", name="3 Models").click()
    settled(page)
    np.savez(tmp_path / "brain.npz", V1=np.random.default_rng(0).normal(size=(9, 4)))
    page.locator('input[type="file"]').last.set_input_files(tmp_path / "brain.npz")
    expect(coming).to_be_visible()
    expect(page.get_by_role("button", name="2 Roles")).to_have_count(0)
    expect(run_button).to_have_count(0)
    let_go()
    expect(page.get_by_text("array V1 of brain.npz has 9 rows")).to_be_visible()
    expect(page.get_by_role("button", name="2 Roles")).to_be_visible()


def test_roles_and_free_features_go_into_the_analysis(
    app: App, page: Page, small_csv: Path
) -> None:
    page.goto(f"{app.url}/new?models=mini-bert&layers=0")
    upload(page, small_csv)
    page.get_by_role("button", name="2 Roles").click()
    choose(page, "Role of note", "no feature")
    for name in ("log frequency", "position from the end"):
        page.get_by_role("button", name=name, exact=True).click()
        settled(page)
    expect(page.get_by_text("ordered feature (added)")).to_have_count(2)
    page.get_by_role("button", name="3 Models").click()
    settled(page)
    page.get_by_role("button", name="2 Roles").click()
    expect(page.get_by_text("ordered feature (added)")).to_have_count(2)
    run(page)
    expect(page.get_by_text("Done:")).to_be_visible()
    spec = job_of(page, app)
    assert spec.roles == (("note", "ignore"),)
    assert spec.add == ("frequency", "position_from_end")
    names = [feature.name for feature in spec.load_stimuli().features]
    assert names[-2:] == ["frequency", "position_from_end"] and "note" not in names


def test_a_file_that_is_refused_never_lets_run_go_on(
    app: App, page: Page, small_csv: Path, tmp_path: Path
) -> None:
    page.goto(f"{app.url}/new?models=mini-bert")
    run_button = page.get_by_role("button", name="Run", exact=True)
    expect(run_button).to_be_enabled()
    # Too large: the browser keeps it, and says so.
    huge = tmp_path / "huge.csv"
    with huge.open("wb") as file:
        file.truncate(501_000_000)  # takes no room on the disk
    upload(page, huge)
    expect(page.get_by_text("The browser has refused a file")).to_be_visible()
    expect(run_button).to_have_count(0)
    picture(page, "new-refused")
    page.get_by_role("button", name="Remove huge.csv").click()
    expect(run_button).to_be_enabled()
    # Not a table at all.
    (tmp_path / "photo.xls").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(range(256)))
    upload(page, tmp_path / "photo.xls")
    expect(run_button).to_be_disabled()
    page.get_by_role("button", name="Back to probing").click()
    expect(run_button).to_be_enabled()
    # Two tables at once are no treebank.
    upload(page, small_csv, tmp_path / "photo.xls")
    expect(page.get_by_text(re.compile("2 files were uploaded at once"))).to_be_visible()
    expect(run_button).to_be_disabled()
    page.get_by_role("button", name="Go on with probing").click()
    expect(run_button).to_be_enabled()


def test_distances_and_named_layers_beside_a_model(
    app: App, page: Page, small_csv: Path, tmp_path: Path
) -> None:
    n = len(read_csv(small_csv))
    rng = np.random.default_rng(0)
    points = rng.normal(size=(n, 3))
    square = np.linalg.norm(points[:, None] - points, axis=2)
    np.savez(tmp_path / "brain.npz", V1=rng.normal(size=(n, 4)), IT=points)
    np.savez(tmp_path / "ratings.npz", rated=square)
    np.savez(tmp_path / "short.npz", V1=np.zeros((3, 2)))
    page.goto(f"{app.url}/new?models=mini-bert&layers=0,1")
    upload(page, small_csv)
    page.get_by_role("button", name="3 Models").click()
    settled(page)
    for name in ("brain", "ratings", "short"):
        upload(page, tmp_path / f"{name}.npz")
        expect(page.get_by_text(re.compile(f"{name}.npz")).first).to_be_visible()
    expect(page.get_by_text("layers V1, IT")).to_be_visible()
    expect(page.get_by_text("array V1 of short.npz has 3 rows")).to_be_visible()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()
    picture(page, "new-files")
    page.get_by_role("button", name="Take away").last.click()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    run(page)
    expect(page.get_by_text(re.compile("Done: small_set"))).to_be_visible()
    spec = job_of(page, app)
    assert spec.precomputed == ("ratings",)
    assert [name for name, _ in spec.representations] == ["brain", "ratings"]


def test_models_are_checked_when_they_are_added(app: App, page: Page) -> None:
    page.goto(f"{app.url}/new?step=models&models=mini-bert")
    # The trio's own steps of training are here; those of a model of the hub are not.
    page.get_by_role("button", name="A training run").click()
    page.get_by_role("button", name=re.compile(r"Add \d+ checkpoints")).click()
    page.keyboard.press("Escape")
    expect(page.get_by_text("mini-gpt2@step512", exact=True)).to_be_visible()
    page.get_by_role("button", name="A training run").click()
    page.get_by_role("textbox", name="Model").fill("EleutherAI/pythia-70m")
    page.get_by_role("textbox", name="Revisions").fill("step1000, step143000")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Add 2 checkpoints").click()
    page.keyboard.press("Escape")
    name = re.compile("EleutherAI/pythia-70m@step1000: .* cannot be reached now")
    expect(page.get_by_text(name)).to_be_visible()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    assert "models=EleutherAI%2Fpythia-70m%40step1000" in page.url
    page.goto(f"{app.url}/new?step=models&models=mini-brt")
    expect(page.get_by_text(re.compile("unknown model 'mini-brt'.*did you mean"))).to_be_visible()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()
    picture(page, "new-unknown-model")
    page.get_by_role("button", name="Seeds of each kind").click()
    expect(page.get_by_text("mini-gpt2@seed2", exact=True)).to_be_visible()
    page.wait_for_url(re.compile("groups=mini-bert%3Dmini-bert%2Cmini-bert%40seed1"))
    page.get_by_role("button", name="The paper's three").click()
    expect(page.get_by_text(re.compile("GPT-2 small.*548 MB"))).to_be_visible()
    assert "groups=" not in page.url


def choose(page: Page, label: str, option: str) -> None:
    """Choose in a list."""
    box = page.get_by_role("combobox", name=label)
    # A list that opens while the page is drawn or scrolls closes again.
    settled(page)
    box.scroll_into_view_if_needed()
    settled(page)
    box.click()
    page.get_by_role("option", name=option, exact=True).click()
    settled(page)
