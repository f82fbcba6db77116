"""Step 1, Read: which stimuli, and how their file is read."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.errors import InputError
from mlem_core.base.text import many
from pages.form import state
from pages.parts import choices, stored
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.data.stimuli import StimulusSet
    from pages.form.draft import Draft

LEVELS = {"word": "words in their sentences", "sentence": "whole sentences"}
MOST_MB = 500
PREVIEW = 8
ENCODINGS = (
    "utf-8", "utf-16", "windows-1252", "windows-1250", "windows-1251", "mac-roman", "shift-jis",
    "gb18030",
)  # fmt: skip
_SAMPLE_MOST = 1_000_000


def show(draft: Draft) -> None:
    """Draw the step."""
    left, right = st.columns([2, 3], gap="large")
    with left:
        _choose(draft)
    with right:
        st.subheader("We read it so")
        if draft.error and draft.at == "read":
            st.error(plain(draft.error), icon=":material/error:")
        if draft.kind == "table":
            _table_choices(draft)
        elif draft.kind == "treebank":
            _treebank_choices(draft)
        elif draft.kind == "set":
            st.caption("A built-in set, read as it is: there is nothing to decide.")
        if draft.base is not None:
            for note in draft.base.notes:
                st.caption(f":material/info: {plain(note)}")
        _preview(draft)


def uploader() -> None:
    """Draw what takes files; it stays in all steps, as a file on its way to it is lost with it."""
    times = st.session_state.setdefault("uploads taken", 0)
    st.file_uploader(
        "Upload a table (.csv, .tsv, .txt, .xlsx) or a treebank (.conllu)",
        accept_multiple_files=True,
        key=f"stimuli {times}",
        on_change=partial(_take, f"stimuli {times}"),
        max_upload_size=stored.largest_upload(MOST_MB),
        help="A table: one row a stimulus, with a header; one column holds the sentences, and how "
        "it is written is detected. Several .conllu files at once are one treebank.",
    )


def _choose(draft: Draft) -> None:
    from mlem_core.data import datasets

    st.subheader("Your stimuli")
    if st.session_state.get("refused stimuli"):
        st.error(plain(st.session_state["refused stimuli"]), icon=":material/error:")
        st.button(
            f"Go on with {plain(draft.label)}",
            icon=":material/undo:",
            on_click=partial(st.session_state.pop, "refused stimuli", None),
            help="Forgets the files that cannot be used.",
        )
    sets = list(datasets.SETS)
    options = list(dict.fromkeys([*sets, *_uploaded(), draft.name]))
    key = "form stimuli"
    st.session_state[key] = draft.name
    st.selectbox(
        "Stimulus set",
        options,
        format_func=lambda name: name.rpartition("/")[2] + (" (built in)" * (name in sets)),
        key=key,
        on_change=lambda: state.choose_stimuli(st.session_state[key]),
        help="A built-in set, or what you have uploaded. How each is read is kept.",
    )
    if draft.base is not None:
        st.caption(plain(described(draft.base)))
    before = st.session_state.get("stimuli before")
    if draft.error and before in options and before != draft.name:
        st.button(
            f"Back to {plain(str(before).rpartition('/')[2])}",
            icon=":material/undo:",
            on_click=partial(state.choose_stimuli, str(before)),
            help="Chooses the stimuli that were chosen before this file.",
        )
    _examples()


def described(stimuli: StimulusSet) -> str:
    """How many stimuli of which kind, and the features."""
    names = ", ".join(feature.name for feature in stimuli.features)
    n = len(stimuli.features)
    return f"{len(stimuli):,} stimuli ({LEVELS[stimuli.level]}), {n} features: {names}"


def _uploaded() -> list[str]:
    uploaded: list[str] = st.session_state.setdefault("uploaded", [])
    return uploaded


def _take(key: str) -> None:
    """Keep what was uploaded and choose it, whatever it holds: what is wrong is said of it."""
    files = st.session_state[key]
    if not files:
        return
    try:
        name = _kept(files)
    except InputError as error:
        st.session_state["refused stimuli"] = str(error)
    else:
        st.session_state.pop("refused stimuli", None)
        before = state.stimuli()
        st.session_state["uploaded"] = list(dict.fromkeys([*_uploaded(), before, name]))
        if name != before:
            st.session_state["stimuli before"] = before
        state.choose_stimuli(name)
    # An empty uploader for the next one: what is chosen stands below it.
    st.session_state["uploads taken"] += 1


def _kept(files: list[Any]) -> str:
    from mlem_core.data.treebank import SUFFIX
    from mlem_core.tasks import analyses

    if len(files) > 1 and not all(one.name.lower().endswith(SUFFIX) for one in files):
        raise InputError(
            f"{len(files)} files were uploaded at once; expected one table, or several {SUFFIX} "
            "files, which are one treebank."
        )
    contents = [(one.name, one.getvalue()) for one in files]
    return stored.upload_name(analyses.keep_uploads(contents, stored.store()))


def _table_choices(draft: Draft) -> None:
    from mlem_core.data.reading.content import DECIMALS, SEPARATORS, ReadAs

    found = draft.table.read_as if draft.table is not None else ReadAs()
    workbook = found.sheet is not None
    if draft.table is not None:
        rows, columns = draft.table.frame.shape
        st.markdown(
            f"**{plain(draft.label)}**: {many(rows, 'row')}, {many(columns, 'column')}"
            + ("" if draft.base is not None and not found.plain else f", {plain(found.sentence)}")
        )
    first, second = st.columns(2)
    with first:
        if workbook:
            state.pick("sheet", found.sheets, str(found.sheet))
        else:
            names = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
            state.pick("sep", list(names), SEPARATORS.get(str(found.separator), ""))
        state.pick("decimal", [*DECIMALS.values()], DECIMALS.get(str(found.decimal), ""))
    with second:
        if not workbook:
            state.pick("encoding", ENCODINGS, found.encoding_name, accept_new_options=True)
        marks = ", ".join(found.found or _found_marks(draft)) or "none"
        state.pick(
            "na",
            [state.NONE],
            marks,
            lambda one: "only empty cells" if one == state.NONE else one,
            accept_new_options=True,
        )


def _found_marks(draft: Draft) -> list[str]:
    """What was taken for missing in the columns that are features."""
    features = [name for name, role in draft.roles.items() if role in ("ordered", "nominal")]
    return list(dict.fromkeys(mark for name in features for mark in draft.marks.get(name, [])))


def _treebank_choices(draft: Draft) -> None:
    from mlem_core.analysis.spec import parameters
    from mlem_core.base.parameters import SEEDS
    from mlem_core.data.treebank import SAMPLE

    def remember(name: str, key: str, default: object) -> None:
        now = st.session_state[key]
        texts = list(now) if isinstance(now, list) else [str(now)]
        choices.put(name, None if now == default else texts)

    def bound(name: str, default: Any, parse: Any) -> dict[str, Any]:
        key, described = f"form {name} {draft.name}", parameters()[name]
        texts = choices.get(name)
        st.session_state[key] = default if not texts else parse(texts)
        about = {"label": described.label, "help": described.text}
        return {**about, "key": key, "on_change": partial(remember, name, key, default)}

    def whole(name: str, default: int, low: int, high: int, step: int = 1) -> None:
        def parse(texts: list[str]) -> int:
            return min(max(int(texts[0]), low), high) if texts[0].isdecimal() else low

        st.number_input(min_value=low, max_value=high, step=step, **bound(name, default, parse))

    names = [] if draft.base is None else [feature.name for feature in draft.base.features]
    first, second = st.columns(2)
    with first:
        st.selectbox(
            options=list(LEVELS),
            format_func=lambda one: LEVELS[one],
            **bound("level", "word", lambda t: t[0] if t[0] in LEVELS else "word"),
        )
        whole("sample", SAMPLE, 2, _SAMPLE_MOST, step=100)
    with second:
        st.multiselect(
            options=list(dict.fromkeys([*names, *(choices.get("balance") or [])])),
            placeholder="as they come",
            **bound("balance", [], list),
        )
        whole("sample_seed", 0, *SEEDS)


def _preview(draft: Draft) -> None:
    frame = None
    if draft.table is not None:
        frame = draft.table.frame
    elif draft.base is not None:
        frame = draft.base.table
    if frame is None:
        return
    shown = frame.head(PREVIEW)
    st.dataframe(
        shown.rename(index=lambda row: row + 1),
        height="content",
        alt=f"The first {len(shown)} rows of {draft.label}",
    )
    part = f"The first {len(shown)} of " if len(shown) < len(frame) else ""
    st.caption(f"{part}{many(len(frame), 'row')}.")


def _examples() -> None:
    from mlem_core.data import datasets, roles

    with st.popover(
        "Examples to start from",
        icon=":material/description:",
        help="A template of nine rows, and the built-in sets, as CSV.",
    ):
        st.download_button(
            "Template",
            data=roles.TEMPLATE,
            file_name="template.csv",
            mime="text/csv",
            icon=":material/download:",
            on_click="ignore",
            help="Nine words of four sentences, to be replaced by yours.",
        )
        for name in datasets.SETS:
            st.download_button(
                name,
                data=partial(_as_csv, name),
                file_name=f"{name}.csv",
                mime="text/csv",
                icon=":material/download:",
                on_click="ignore",
                key=f"example {name}",
                help=f"The built-in set {name}, as the program uses it.",
            )


def _as_csv(name: str) -> bytes:
    from mlem_core.data import datasets, roles

    return roles.as_csv(datasets.load(name))
