"""The screens, an entry each, and the pages of docs/ with the links to them."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import streamlit as st

from mlem_core import extending
from mlem_core.base import VERSION
from mlem_core.extending import Screen
from mlem_core.report.methods import METHOD, short_citation
from mlem_core.report.methods import bibtex as entries

_KERNEL = (
    Screen("explore", "Explore", "account_tree"),
    Screen("report", "Report", "description"),
    Screen("new", "New analysis", "add_circle"),
    Screen("docs", "Docs", "menu_book", listed=False),
)
# Addresses of earlier versions, and what Explore shows of each.
MOVED: dict[str, dict[str, str]] = {
    "profiles": {"view": "profiles"},
    "heatmaps": {"view": "heatmap"},
    "layers": {"view": "map"},
    "trust": {"detail": "checks"},
    "because": {"detail": "erase"},
    "stimuli": {"detail": "stimuli"},
}
_ADDED = extending.contributions("screens")
SCREENS = {screen.url_path: screen for screen in (_KERNEL[0], *_ADDED, *_KERNEL[1:])}

ROOT = Path(__file__).resolve().parents[2]
CITE = "cite"
# In the order of somebody who begins; what developers read is not among them.
_PAGES = {
    "docs/glossary.md": "Glossary",
    "docs/worked-example.md": "A worked example",
    "docs/command-line.md": "Command line and Python",
    "docs/stimuli.md": "Stimuli and treebanks",
    "docs/models.md": "Models",
    "docs/brain.md": "Brain data",
    "docs/why.md": "Method",
    "docs/systems.md": "Systems and groups",
    "docs/because.md": "Causes, by erasing",
    "docs/audit.md": "Audit and replication",
    "docs/report.md": "Report, page and rerun",
    "docs/validation/README.md": "Validation",
    "docs/trio.md": "Results of the small models",
    "docs/cluster.md": "Clusters",
    "docs/hosting.md": "Hosting",
    "README.md": "Overview",
}
_LINK = re.compile(r"(?<!!)\[(?P<text>[^][]+)\]\((?P<path>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")
_IMAGE = re.compile(r"^!\[(?P<alt>[^]]*)\]\((?P<path>[^)\s]+)\)$", re.MULTILINE)


def docs_pages() -> dict[str, str]:
    """Title of each page that is here, by its name in the URL."""
    there = {_name(path): title for path, title in _PAGES.items() if (ROOT / path).is_file()}
    return there | {CITE: "Cite, papers and source"}


def _name(path: str) -> str:
    return "validation" if path.endswith("validation/README.md") else Path(path).stem.lower()


def show_docs(name: str) -> None:
    """A page of docs/ by its name in the URL."""
    path = next(path for path in _PAGES if _name(path) == name)
    text = _turned((ROOT / path).read_text(encoding="utf-8"), path)
    at = 0
    for image in _IMAGE.finditer(text):
        st.markdown(text[at : image.start()])
        st.image(str(ROOT / posixpath.join(posixpath.dirname(path), image["path"])))
        st.caption(image["alt"])
        at = image.end()
    st.markdown(text[at:])


def _turned(markdown: str, path: str) -> str:
    """A page with its links leading to this screen; a link to a file of the source is its path."""

    def turn(link: re.Match[str]) -> str:
        target, anchor = link["path"], link["anchor"] or ""
        if ":" in target:
            return link[0]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        there = path if not target else there
        if there in _PAGES:
            same = there == path and anchor
            return f"[{link['text']}]({anchor if same else f'?page={_name(there)}'})"
        return link["text"] if there in link["text"] else f"{link['text']} (`{there}`)"

    return _LINK.sub(turn, markdown)


def cite() -> None:
    """References for citing the program and the papers, and the place of the source."""
    st.markdown(
        "The method is that of two papers:\n\n"
        "- Salle, Jalouzot, Lan, Chemla and Lakretz (2024), *What makes two language models think "
        "alike?* [arXiv:2406.12620](https://arxiv.org/abs/2406.12620)\n"
        "- Jalouzot, Pallier, Chemla and Lakretz (2024), *Metric learning encoding models* "
        "[arXiv:2402.11608](https://arxiv.org/abs/2402.11608)\n\n"
        f"This is MLEM Explorer {VERSION} (BSD-3-Clause); `CITATION.cff` and "
        "`LICENSE` are in its folder, and the source is what runs here."
    )
    st.markdown(f"In BibTeX ({', '.join(short_citation(key) for key in METHOD)}):")
    st.code(entries({"models": {}}), language="bibtex")


def example_link() -> None:
    """A link to the worked example, for below a bar chart of contributions."""
    label, page = "How an RSA correlation becomes a sum", {"page": "worked-example"}
    st.page_link(SCREENS["docs"].file, label=label, query_params=page, icon=":material/help:")


def links() -> None:
    """The foot of each page."""
    with st.container(key="foot", horizontal=True, gap="small"):
        for name, label, help in (
            ("readme", "Docs", "How to use the program, page by page."),
            ("glossary", "Glossary", "What the words on these screens mean."),
            ("why", "Method", "What is computed, and what it does not claim."),
            (CITE, "Papers, cite, source", "How to cite the program and the papers."),
        ):
            st.page_link(SCREENS["docs"].file, label=label, query_params={"page": name}, help=help)
