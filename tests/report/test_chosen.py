"""A figure of a report is drawn again with the user's words; an analysis shows itself in Python."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import in_files, probing, refused, words

from mlem_core import Store, explain, run, with_intervals
from mlem_core.analysis.context import SelectionContext
from mlem_core.base.labels import Names
from mlem_core.cli.summary import summarize
from mlem_core.figures.plots import FIGURES, FigureContext, FigureOptions, draw
from mlem_core.figures.profiles import profiles
from mlem_core.figures.similarity import similarity_matrices
from mlem_core.figures.why import waterfall
from mlem_core.inference.layer_intervals import LAYER_INTERVALS
from mlem_core.report.chosen import Chosen
from mlem_core.report.formats import table as latex_table
from mlem_core.report.methods import methods_paragraph
from mlem_core.tasks import examples

PAIR = (("mini-gpt2", 6), ("mini-mamba", 11))


def kept(example, figure, **more):
    """A figure as it comes back from a file."""
    chosen = Chosen(figure, examples.ID, example.select(), PAIR, **more)
    return Chosen.from_dict(json.loads(json.dumps(chosen.to_dict())))


@pytest.mark.slow
def test_it_is_drawn_again_as_it_was_with_what_was_selected(example, tmp_path):
    context = FigureContext.from_analysis(example, Store(tmp_path))
    for figure in ("why", "profiles"):
        chosen = Chosen(figure, examples.ID, example.select(), PAIR)
        first = chosen.drawn(context)
        again = kept(example, figure).drawn(context)
        assert again.figure == first.figure and again.caption == first.caption
        pd.testing.assert_frame_equal(again.data, first.data)
    selection = example.select(["tense", "number"], [("minilm", 3), ("smollm2", 6)])
    chosen = Chosen("why", examples.ID, selection, (("smollm2", 6), ("minilm", 3)))
    assert Chosen.from_dict(chosen.to_dict()) == chosen
    made = chosen.drawn(context)
    assert set(made.data["term"]) == {"tense", "number", "unexplained"}
    assert made.title == "Why smollm2 layer 6 and minilm layer 3 are similar"
    made = kept(example, "similarity", options={"order": "clustering"}).drawn(context)
    assert "dendrogram" in {trace.name for trace in made.figure.data}


def test_words_and_names_are_the_users(example, tmp_path):
    names = Names({"part_of_speech": "word class"}, {"mini-gpt2": "GPT-2", "smollm2": "Smol"})
    drawing, chosen = FigureOptions(names=names), kept(example, "compare")
    context = replace(FigureContext.from_analysis(example, Store(tmp_path)), drawing=drawing)
    made = chosen.drawn(context)
    assert made.title == "Importances in GPT-2 layer 6 and mini-mamba layer 11"
    assert "word class" in {trace.name for trace in made.figure.data}
    assert list(made.printed.columns) == ["feature", "GPT-2 layer 6", "mini-mamba layer 11"]
    assert made.printed["feature"][0] == "word class"
    # What a program reads keeps the identifiers.
    assert "part_of_speech" in set(made.data["feature"])
    own = chosen.worded("title", " My\n title ").worded("caption", "My caption.")
    made = own.drawn(context)
    assert (made.title, made.caption) == ("My title", "My caption.")
    assert own.worded("title", "").worded("caption", "") == chosen


def test_what_cannot_be_drawn_says_why(example, tmp_path):
    chosen = kept(example, "compare")
    alone = replace(chosen, selection=example.select(layers=PAIR[:1]))
    with refused("two layers"):
        alone.drawn(FigureContext.from_analysis(example))
    gone = replace(chosen, selection=replace(chosen.selection, features=("mood",)))
    with refused("'mood'"):
        gone.drawn(FigureContext.from_analysis(example, Store(tmp_path)))
    for broken in ({}, {**chosen.to_dict(), "selection": 3}, {**chosen.to_dict(), "pair": [1]}):
        with refused("report"):
            Chosen.from_dict(broken)
    with refused("'pie'"):
        Chosen.from_dict({**chosen.to_dict(), "figure": "pie"})


IDS = ("part_of_speech", "word_position", "word_length", "model_a1", "model_b2")
# What a click hands on, and by what traces belong together, nobody reads.
QUIET = ("customdata", "legendgroup", "uid")


@pytest.mark.slow
def test_no_identifier_is_left_in_words(tmp_path):
    """Of two models, with the values of the part of speech told apart."""
    names = Names({"part_of_speech": "word class"}, {"model_a1": "Anna", "model_b2": "Berta"})
    table, rng = probing(40), np.random.default_rng(0)
    kinds = pd.get_dummies(table["part_of_speech"]).to_numpy(float)
    layers = {n: kinds * n + rng.standard_normal(kinds.shape) for n in range(2)}
    store, features = Store(tmp_path / "store"), ("part_of_speech", "tense", "word_position")
    more = {"folds": 3, "values": features[:1], "features": features}
    spec = in_files(tmp_path, table, {"model_a1": layers, "model_b2": layers}, **more)
    analysis = run(spec, store)
    drawing = FigureOptions(names=names)
    shown = FigureContext(analysis, analysis.select(), store, drawing=drawing)
    made = {name: draw(name, shown) for name in FIGURES}
    made = {name: one for name, one in made.items() if one is not None}
    assert {"profiles", "similarity", "why"} <= set(made)
    for name, one in made.items():
        drawn = json.loads(
            one.figure.to_json(),
            object_hook=lambda part: {key: part[key] for key in part if key not in QUIET},
        )
        tex = latex_table(one.printed, one.caption, title=one.title)
        words = " ".join((one.title, one.caption, tex, json.dumps(drawn))).replace(r"\_", "_")
        assert not [id for id in IDS if id in words], name
    assert "coded by value" in made["profiles"].caption
    methods = methods_paragraph(analysis, analysis.results(), names=names)
    assert "Anna (model_a1, repres" in methods and "part_of_speech" not in methods


def test_repr_headline_and_plots_are_those_of_the_tables(systems):
    analysis, store = systems.analysis, systems.store
    results, names = analysis.results(), analysis.pairs.features
    best = results.scores.groupby(["model", "layer"])["rho"].mean().idxmax()
    assert f"{len(analysis.stimuli)} words" in repr(analysis) and "ridge" in repr(analysis)
    assert all(
        fact in repr(results) for fact in ("6 layers", "2 models", f"{best[0]} layer 2", "position")
    )
    why = explain(analysis, "one:2", "two:2")
    assert repr(why) == why.headline
    assert "RSA" in why.headline and "not compared with chance" in why.headline
    assert "<td>position</td>" in why._repr_html_()
    sure = with_intervals(why, analysis, store)
    assert repr(sure) == f"{sure.headline} {sure.how_sure}" and "Position accounts" in repr(sure)
    same = profiles(results.importance, results.scores, names)
    # An analysis of an older version has no marks.
    analysis = replace(analysis, variance=None)
    assert analysis.plot.profiles() == same
    squares = similarity_matrices(results.similarity_profiles, results.similarity_rsa)
    assert analysis.plot.similarity() == squares
    assert analysis.plot.why("one:2", ("two", 2)) == waterfall(why.terms, ())
    with refused("unknown layer"):
        analysis.plot.similarity(layers="one:7")


@pytest.mark.slow
def test_three_lines_name_the_planted_truth(systems):
    analysis, store = systems.analysis, systems.store
    results = analysis.results()
    rsa = f"{results.similarity_rsa.loc['one:2', 'two:2']:.2f}"[1:]
    mean = results.importance.query("feature == 'position'")["importance"].mean()
    alike, shared, matters = summarize(analysis, results)
    assert "--bootstrap" in shared and "position" not in shared
    sure = partial(with_intervals, analysis=analysis, store=store)
    for bounds in (None, LAYER_INTERVALS.get(SelectionContext.from_analysis(analysis, store))):
        alike, shared, matters = summarize(analysis, results, bounds, sure=bounds and sure)
        assert all(fact in alike for fact in ("9 pairs", "one layer 2", "two layer 2", rsa))
        assert all(fact in matters for fact in ("position", f"{mean:.2f}"[1:], "6 layers"))
        assert ("95 %" in alike) == ("95 %" in matters) == (bounds is not None)
    assert "Position accounts for" in shared


@pytest.mark.slow
def test_noise_gets_no_headline(tmp_path):
    table = words(60)
    rng = np.random.default_rng(3)
    layers = {a: {n: rng.standard_normal((len(table), 6)) for n in range(2)} for a in "ab"}
    store = Store(tmp_path / "store")
    analysis = run(in_files(tmp_path, table, layers, folds=3), store)
    for bounds in (None, LAYER_INTERVALS.get(SelectionContext.from_analysis(analysis, store))):
        alike, shared, matters = summarize(analysis, analysis.results(), bounds)
        assert "ardly" in alike and "4 pairs" in alike
        assert not any(name in shared + matters for name in ("noun", "length"))
