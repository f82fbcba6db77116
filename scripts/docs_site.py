"""What the docs site does to the pages, which are read on the forge as they are (a hook of MkDocs).

Pages that stand elsewhere in the repository (the README) come in, notebooks become pages, and links
are turned so that they lead to a page of the site. A link to a file that is no page becomes the
file's path; one to a file that is not there is a warning, which fails the build.
"""

from __future__ import annotations

import json
import logging
import posixpath
import re
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOG = logging.getLogger("mkdocs.hooks.docs_site")
# Pages of the site that are not in docs/.
ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "training/README.md": "training.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/digits/README.md": "examples/digits.md",
    "examples/images92/README.md": "examples/images92.md",
}
# The example as a page that stands alone, and what its link follows.
LIVE, LIVE_HERE = "explorer.html", "The example is 3.3 MB."
_LINK = re.compile(r"\[(?P<text>(?:[^][]|\[[^]]*\])*)\]\((?P<path>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.M | re.S)


def site_path(path: str) -> str | None:
    """Where a file of the repository stands in the site; None where it does not."""
    if path in ELSEWHERE:
        return ELSEWHERE[path]
    if not path.startswith("docs/"):
        return None
    return path.removeprefix("docs/").replace(".ipynb", ".md")


def turned(markdown: str, path: str) -> str:
    """The text of a file of the repository, with its links as the site has them."""
    here = posixpath.dirname(site_path(path) or "")

    def turn(link: re.Match[str]) -> str:
        target, anchor = link["path"], link["anchor"] or ""
        if not target or ":" in target or target.startswith("/"):
            return link[0]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        found = site_path(there)
        if found is not None:
            return f"[{link['text']}]({posixpath.relpath(found, here or '.')}{anchor})"
        if not (ROOT / there).exists():
            LOG.warning("%s has a link to %s, which is not there", path, there)
        return link["text"] if there in link["text"] else f"{link['text']} (`{there}`)"

    parts = _FENCE.split(markdown)
    parts[::2] = [_LINK.sub(turn, part) for part in parts[::2]]
    return "".join(parts)


def page_of(notebook: dict[str, Any]) -> str:
    """An executed notebook as Markdown: text, code, and what the code gave."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [shown for output in cell["outputs"] if (shown := _output(output))]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "image/png" in data:
        content = "".join(data["image/png"]).replace("\n", "")
        return f'<img alt="figure" src="data:image/png;base64,{content}">'
    if "text/html" in data:
        # A blank line would end the block of HTML.
        shown = "".join(data["text/html"]).replace(' border="1" class="dataframe"', "")
        return re.sub(r"\n\s*\n", "\n", shown)
    text = "".join(data["text/plain"]).rstrip()
    return f"```text\n{text}\n```" if text else ""


def example_page() -> str:
    """The example as one HTML page (some 40 s of processor time)."""
    from mlem_core.extensions.web_page.page import write_page
    from mlem_core.figures.plots import FigureContext, FigureOptions
    from mlem_core.storage.store import Store
    from mlem_core.tasks.examples import example

    made = example()
    selection = made.select()
    with tempfile.TemporaryDirectory() as folder:
        drawing, store = FigureOptions(made.most_alike()), Store(Path(folder) / "store")
        context = FigureContext(made, selection, store, drawing=drawing)
        path = write_page(context, Path(folder) / LIVE, "The example of MLEM Explorer")
        return path.read_text(encoding="utf-8")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not Markdown files of docs/."""
    from mkdocs.structure.files import File

    for path, uri in ELSEWHERE.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=turned(text, path)))
    files.append(File.generated(config, LIVE, content=example_page()))
    for file in [each for each in files if each.src_uri.endswith(".ipynb")]:
        page = page_of(json.loads((ROOT / "docs" / file.src_uri).read_text(encoding="utf-8")))
        uri = file.src_uri.replace(".ipynb", ".md")
        files.append(File.generated(config, uri, content=turned(page, f"docs/{file.src_uri}")))
        files.remove(file)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn the links of a page of docs/."""
    if page.file.generated_by:
        return markdown
    own = turned(markdown, f"docs/{page.file.src_uri}")
    return own.replace(LIVE_HERE, f"{LIVE_HERE} [Open it]({LIVE}).")
