"""Screens without a browser: the app is run in this process, as a server runs it for a window."""

import base64
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from helpers.inputs import in_files, words
from helpers.repository import ROOT
from mlem_core import AnalysisSpec, Store
from mlem_core.tasks import analyses, followups, runner
from mlem_core.tasks.access import VARIABLE
from mlem_core.tasks.analyses import Job
from pages.form import models
from pages.parts import background, stored
from pages.parts.screens import SCREENS

APP = ROOT / "app.py"


class Screen:
    """A window of the app: what stands in it, and what one does there.

    Widgets are found by their label or key, figures by their name; both stay as they are when the
    prose is rewritten.
    """

    def __init__(self, page: str = "", /, **query: str | Sequence[str]) -> None:
        self.app = AppTest.from_file(APP, default_timeout=240)
        for name, values in query.items():
            self.app.query_params[name] = values
        if page:
            self.app._page_hash = calc_hash(page)
        self.run()

    def run(self) -> Self:
        """Draw it again; no script may end in an exception, or in what is not expected."""
        self.app.run()
        assert not self.app.exception, self.app.exception[0].stack_trace
        assert "unexpected happened" not in self.said, self.said
        return self

    def go(self, page: str) -> Self:
        """To another screen by the navigation: the address says nothing of the choices."""
        self.app.query_params.clear()
        self.app.switch_page(SCREENS[page].file)
        return self.run()

    @property
    def address(self) -> dict[str, list[str]]:
        """What the address says, by name."""
        said = self.app.query_params.items()
        return {name: [one] if isinstance(one, str) else list(one) for name, one in said}

    @property
    def said(self) -> str:
        """All texts of the screen, without the signs that keep names from being markup."""
        kinds = ("title", "header", "subheader", "markdown", "caption", "info", "warning", "error")
        texts = [str(one.value) for kind in kinds for one in self.app.get(kind)]
        texts += [f"{one.label} {one.value}" for one in self.app.metric]
        return plain("\n".join([*texts, *(one.label for one in self.app.expander)]))

    @property
    def errors(self) -> list[str]:
        """What is refused; the form's word on a file that the browser refuses is always there."""
        said = (plain(one.value) for one in self.app.error)
        return [one for one in said if not one.startswith("The browser has refused")]

    @property
    def buttons(self) -> dict[str, Any]:
        """All buttons by label, and by key where there is one."""
        found = {plain(one.label): one for one in reversed(self.app.button)}
        return found | {one.key: one for one in self.app.button if one.key}

    def press(self, name: str) -> Self:
        """A button by its label or key."""
        assert not self.buttons[name].disabled, name
        self.buttons[name].click()
        return self.run()

    def widget(self, kind: str, name: str) -> Any:
        """The widget of a kind ("selectbox" ...) with this label, or whose key begins so."""
        found = self.app.get(kind)
        own = [one for one in found if name == one.label or (one.key or "").startswith(name)]
        assert own, (kind, name, [(one.label, one.key) for one in found])
        return own[0]

    def choose(self, name: str, value: Any, kind: str = "selectbox") -> Self:
        self.widget(kind, name).set_value(value)
        return self.run()

    def tick_off(self, *names: str, among: str = "choice features") -> Self:
        """Features or models, in the strip."""
        for name in names:
            self.widget("button_group", among).unselect(name)
        return self.run()

    def drawer(self, name: str) -> Self:
        """Open a drawer of the two layers by its name: "checks"; once more closes it."""
        now = self.widget("button_group", "choice detail").value
        return self.choose("choice detail", None if now == name else name, "button_group")

    def save(self, view: str, **settings: Any) -> Self:
        """The dialog that saves the figure of a view, with these settings of the file."""
        for name, value in {"": None, **settings}.items():
            if name:
                self.widget("button_group", f"export {name}").set_value(value)
            self.app.session_state["dialog"] = f"canvas {view}"  # as the canvas tells it
            self.run()
        return self

    @property
    def popovers(self) -> list[str]:
        """The labels of what a click opens: "7 of 8 features"."""
        return [one.proto.popover.label for one in self.app.get("popover")]

    @property
    def components(self) -> dict[str, Any]:
        """The parts of a page that JavaScript draws, by name: "canvas_views"."""
        return {one.proto.component_name: one.proto for one in self.app.get("bidi_component")}

    @property
    def canvas(self) -> dict[str, Any]:
        """What the canvas is given."""
        content: dict[str, Any] = json.loads(self.components["canvas_views"].bytes)
        return content

    @property
    def pair(self) -> tuple[str, ...]:
        """The titles of A and B."""
        canvas = self.canvas
        return tuple(canvas["layers"][place]["title"] for place in canvas["pair"])

    @property
    def importances(self) -> dict[str, list[float | None]]:
        """The importance of each feature in the layers of the canvas, in their order."""
        return {each["name"]: each["values"] for each in self.canvas["importance"]["features"]}

    def unfold(self, *keys: str) -> Self:
        """What is drawn only once it is opened: "folded NAME", "more ID"; by default all parts."""
        for key in keys or [part.key for part in self.app.expander if part.key]:
            self.app.session_state[key] = True
        return self.run()

    def upload(self, *files: Path, to: str = "stimuli") -> Self:
        """Into the uploader whose key begins with `to`."""
        given = [(one.name, one.read_bytes(), "") for one in files]
        uploader = self.widget("file_uploader", f"form {to}" if to == "rdm" else to)
        uploader.set_value(given if uploader.accept_multiple_files else given[0])
        return self.run()

    @property
    def preview(self) -> list[list[str]]:
        """Rows of the preview of a file after what numbers them, the marked word in brackets."""
        found = [one.proto for one in self.app.get("bidi_component")]
        (drawn,) = [json.loads(one.json) for one in found if one.component_name == "preview"]

        def marked(text: str, mark: list[int] | None) -> str:
            return f"{text[: mark[0]]}[{text[slice(*mark)]}]{text[mark[1] :]}" if mark else text

        return [[row["shown"], *(marked(**cell) for cell in row["cells"])] for row in drawn["rows"]]

    @property
    def figures(self) -> dict[str, dict[str, Any]]:
        """Data and layout of each figure, by its name."""
        found = {}
        for one in self.app.get("plotly_chart"):
            drawn = json.loads(one.proto.spec, object_hook=_unpacked)
            found[one.key.removeprefix("figure ")] = drawn | {"alt": one.proto.alt}
        return found

    def how(self, figure: str) -> str:
        """How a figure was computed: its caption in print."""
        return str(self.figures[figure]["alt"])

    def traces(self, figure: str) -> set[str]:
        """The names of a figure's traces."""
        return {one.get("name", "") for one in self.figures[figure]["data"]}

    @property
    def job(self) -> str:
        """The id of the analysis in the address."""
        return self.address["analysis"][0]

    def spec(self, store: Store) -> AnalysisSpec:
        """What the analysis in the address was asked for."""
        job = analyses.find(self.job, store)
        assert job is not None
        return job.spec


def plain(text: str) -> str:
    """A text without the signs that keep names from being markup."""
    return re.sub(r"\\(\W|_)", r"\1", text)


def _unpacked(found: dict[str, Any]) -> Any:
    """Long arrays of a figure are packed."""
    if "bdata" not in found:
        return found
    array = np.frombuffer(base64.b64decode(found["bdata"]), found["dtype"])
    return array.reshape([int(n) for n in str(found.get("shape", len(array))).split(",")]).tolist()


def in_this_process(folder, held, *, is_awaited):
    """Instead of `processes.start_process`: the work is done when this returns."""
    runner.execute(folder, followups.make)
    (folder / "pid.json").unlink()


def ran(spec: AnalysisSpec, store: Store) -> Job:
    """The job of an analysis that has been run to its end."""
    job = analyses.start(spec, store)
    assert job.status().state == "done", job.status().message
    return job


def jobs_in(store: Store) -> set[str]:
    """The ids of the store's own analyses, the example not among them."""
    return {job.id for job in analyses.recent(store)} - {"example"}


class Own(NamedTuple):
    """A store, the analyses in it, and the folder of the files that they are of."""

    store: Store
    jobs: list[Job]
    files: Path


def small_spec(folder: Path) -> AnalysisSpec:
    """Words with a noun, a kind that some lack, and a position, and two systems of three layers.

    In the first of their layers nouns are apart, in the last places are; kinds are in all, and of
    the three kinds two lie close together.
    """
    table, rng = words(40).drop(columns="length"), np.random.default_rng(0)
    kinds = rng.choice(["act", "fact", "tool"], len(table))
    seen = np.column_stack((table["noun"], table["position"], kinds == "tool", kinds == "act"))

    def layer(k):
        return seen * [2.0 - k, 0.5 * k, 1.5, 0.5] + 0.5 * rng.standard_normal(seen.shape)

    layers = {system: {k: layer(k) for k in range(3)} for system in ("one", "two")}
    table["kind"] = pd.Series(kinds).where(rng.random(len(table)) > 0.1)
    return in_files(folder, table, layers, folds=3)


@pytest.fixture(autouse=True)
def window(monkeypatch):
    """No process and no thread outlives a click, and nothing of another test is known."""
    monkeypatch.setattr(runner, "start_process", in_this_process)
    # A test that wants the intervals of a canvas asks for them.
    monkeypatch.setattr(background, "begin_ahead", lambda work: None)
    monkeypatch.setattr(followups, "begin_last_stage", lambda job: None)
    monkeypatch.delenv(VARIABLE, raising=False)
    stored._opened.cache_clear()
    models._offer.clear()


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The store of this server: it has the example, and nothing else."""
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    return Store(tmp_path / "cache")
