"""Tables as LaTeX say what the frame says, and nothing in them is a command."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from mlem_core.report import latex


def cells_of(text: str) -> list[list[str]]:
    """The rows between the rules, as cells."""
    body = text.partition(r"\toprule")[2].partition(r"\bottomrule")[0]
    rows = [line for line in body.splitlines() if line.strip() not in ("", r"\midrule")]
    return [
        [c.strip() for c in re.split(r"(?<!\\)&", r.strip().removesuffix(r" \\"))] for r in rows
    ]


def test_each_cell_is_where_it_was() -> None:
    frame = pd.DataFrame(
        {"feature": ["a_b", "50 %"], "layer": [1, -2], "FI": [0.12345, -0.5], "sd": [np.nan, -1e-9]}
    )
    text = latex.table(frame, caption="Importance & more", label="tab:my table")
    assert cells_of(text) == [
        ["feature", "layer", "FI", "sd"],
        [r"a\_b", "1", "0.123", "--"],
        [r"50 \%", "$-2$", "$-0.500$", "0.000"],
    ]
    assert r"\begin{tabular}{lrrr}" in text
    assert r"\caption{Importance \& more}" in text
    assert r"\label{tab:my-table}" in text


def test_nothing_that_a_user_wrote_is_a_command() -> None:
    nasty = r"\input{/etc/passwd} $x^2$ ~#{}|<>" + "\n\\\\ end"
    text = latex.escape(nasty)
    assert "\n" not in text
    known = r"\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar)\{\}"
    rest = re.sub(known + r"|\\[{}&%$#_]", "", text)
    assert not set(rest) & set("\\{}$&#^~%_<>|")


def environments(text: str) -> list[str]:
    """The names of the environments in order of their ends; each ends where it should."""
    opened, ended = [], []
    for what, name in re.findall(r"\\(begin|end)\{([a-z*]+)\}", text):
        if what == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
            ended.append(name)
    assert not opened
    return ended


def balanced(text: str) -> bool:
    """Whether braces that are no text, and dollars, come in pairs."""
    bare = re.sub(r"\\[{}$\\]", "", text)
    return bare.count("{") == bare.count("}") and bare.count("$") % 2 == 0


def test_a_long_table_breaks_over_pages_and_repeats_its_head() -> None:
    frame = pd.DataFrame({"layer_a": [f"a_{i}" for i in range(60)], "rsa": np.linspace(-1, 1, 60)})
    text = latex.table(frame, "Both {similarities}.", "tab:similarity", title="Similarity [τ]")
    assert environments(text) == ["longtable"] and balanced(text)
    assert text.count(r"layer & RSA \\") == 2 and r"\begin{longtable}{lr}" in text
    assert text.index(r"\endfirsthead") < text.index(r"\endhead") < text.index(r"\endlastfoot")
    assert r"\caption[{Similarity [$\tau$]}]{Similarity [$\tau$]. Both \{similarities\}.}" in text
    assert r"\label{tab:similarity} \\" in text
    body = text.partition(r"\endlastfoot")[2]
    assert body.count(r" \\") == 60 and r"a\_0 & $-1.000$ \\" in body
    short = latex.table(frame[:40], "c")
    assert environments(short) == ["tabular", "table"] and "longtable" not in short


def test_cells_are_no_options_and_small_p_are_not_0() -> None:
    frame = pd.DataFrame({"interval": ["[0, 1]", "*"], "p": [0.00004, 0.5], "rsa_p": [0.0, np.nan]})
    text = latex.table(frame)
    assert "\n{}[0, 1] & $<0.001$ & $<0.001$" in text and "\n{}* & 0.500 & --" in text
    assert r"interval & $p$ & $p$ \\" in text


def test_a_figure_is_included_at_its_width() -> None:
    one, two = (
        latex.figure("figures/a.pdf", mm, "As ρ is.", "fig:a b", "A_b") for mm in (89.0, 183.0)
    )
    assert environments(one) == ["figure"] and environments(two) == ["figure*"]
    assert r"\includegraphics[width=89mm]{figures/a.pdf}" in one and r"\label{fig:a-b}" in one
    assert r"\caption[{A\_b}]{A\_b. As $\rho$ is.}" in two
    whole = latex.document([one, two], "references")
    assert environments(whole) == ["figure", "figure*", "document"] and balanced(whole)
    assert all(f"{{{name}}}" in whole for name in latex.PACKAGES)


def test_the_letters_of_the_figures_are_set() -> None:
    assert latex.escape("ρ ± 1 × τ") == r"$\rho$ $\pm$ 1 $\times$ $\tau$"
    assert latex.escape("ΔΛλ −2 Αo é 中") == r"$\Delta$$\Lambda$$\lambda$ $-$2 Αo é 中"
    assert latex.escape("a\u200bb\u00a0c") == "ab~c"


def test_a_table_that_is_wider_than_a_page_is_made_smaller() -> None:
    narrow = pd.DataFrame({"feature": ["tense"], "rsa": [0.5]})
    wide = pd.DataFrame({f"feature {at}": ["0.123 [0.100, 0.150]"] for at in range(9)})
    assert "resizebox" not in latex.table(narrow)
    text = latex.table(wide, "c")
    assert text.index(r"\resizebox") < text.index(r"\begin{tabular}")
    assert r"\end{tabular}}" in text and balanced(text) and environments(text)


def test_letters_that_a_font_lacks_do_not_stop_a_document() -> None:
    text = latex.document([latex.escape("زمن 特征 ŋ ϕ → ∞")])
    assert r"\UTFviii@undefined@err#1{?}" in text.partition(r"\begin{document}")[0]
    assert r"زمن 特征 ŋ $\phi$ $\to$ $\infty$" in text
