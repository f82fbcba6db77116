"""Stimuli in time: roles of their columns, blocks, folds, and labels that are shifted."""

import math

import numpy as np
import pandas as pd
import pytest

from mlem_core import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.extensions.candidates.candidate_gains import stimulus_candidates
from mlem_core.stimuli.folds import stimulus_folds
from mlem_core.stimuli.levels import MOMENT, exchanges, recurring_units, time_exchanges
from mlem_core.stimuli.presentation import (
    presentation_order,
    presentation_runs,
    times_in_lags,
    with_blocks,
)
from mlem_core.stimuli.roles import read_csv
from mlem_core.stimuli.stimulus_csv import read_written, write_csv
from mlem_core.stimuli.stimulus_set import group_name

N = 200


def table(**columns):
    """200 stimuli with two features, and columns."""
    rng = np.random.default_rng(0)
    topic = np.repeat(rng.permutation(["a", "b", "c", "d"] * 5), 10)
    names = [f"s{number}.png" for number in range(N)]
    made = pd.DataFrame({"stimulus": names, "topic": topic, "size": rng.random(N).round(3)})
    return made.assign(**columns)


def read(tmp_path, frame, **choices):
    frame.to_csv(tmp_path / "s.csv", index=False)
    return read_csv(tmp_path / "s.csv", **choices)


RUNS = np.repeat(["r1", "r2", "r3", "r4"], 50)


def test_an_order_makes_blocks_of_neighbours_and_contiguous_folds(tmp_path):
    rng = np.random.default_rng(1)
    frame = table(trial=np.arange(N)).iloc[rng.permutation(N)]
    stimuli = read(tmp_path, frame, roles={"trial": "order"})
    assert [feature.name for feature in stimuli.features] == ["topic", "size"]
    assert group_name(stimuli) == "block"
    in_order = presentation_order(stimuli)
    assert frame["trial"].to_numpy()[in_order].tolist() == list(range(N))
    blocks = stimuli.groups[in_order]
    assert (np.diff(pd.factorize(blocks)[0]) >= 0).all() and len(np.unique(blocks)) == 12
    folds = stimulus_folds(stimuli, "sentences", 5, 0)
    assert (np.diff(folds[in_order]) >= 0).all() and np.bincount(folds).min() >= 30


def test_folds_are_whole_runs_where_there_are_enough(tmp_path):
    stimuli = read(tmp_path, table(run=RUNS))
    assert stimulus_folds(stimuli, "sentences", 4, 0).tolist() == np.repeat(range(4), 50).tolist()
    of_blocks = stimulus_folds(stimuli, "sentences", 5, 0)
    assert (np.diff(of_blocks) >= 0).all()
    assert np.bincount(of_blocks).min() >= 30


def test_runs_of_two_sessions_are_different_runs(tmp_path):
    sessions = np.repeat(["one", "two"], 100)
    stimuli = read(tmp_path, table(session=sessions, run=np.tile(np.repeat([1, 2], 50), 2)))
    assert presentation_runs(stimuli).tolist() == np.repeat(range(4), 50).tolist()


def test_time_stamps_are_an_order(tmp_path):
    times = pd.date_range("2026-01-01 10:00", periods=N, freq="3s")[::-1]
    stimuli = read(tmp_path, table(when=times.astype(str)), roles={"when": "order"})
    assert presentation_order(stimuli).tolist() == list(range(N))[::-1]


def test_stimuli_in_time_survive_being_written(tmp_path):
    stimuli = read(tmp_path, table(run=RUNS, onset=np.tile(np.arange(50) * 2.5, 4)))
    write_csv(stimuli, tmp_path / "written.csv")
    again = read_written(tmp_path / "written.csv", name=stimuli.name)
    assert again.digest == stimuli.digest
    assert again.groups.tolist() == stimuli.groups.tolist()


def test_results_of_a_unit_called_run_are_not_those_of_runs_that_stay_together(tmp_path):
    in_runs, plain = read(tmp_path, table(run=RUNS)), read(tmp_path, table(scene=RUNS))
    assert in_runs.identity != in_runs.digest
    assert plain.identity == plain.digest


def write_events(path, n=48, **columns):
    """Events as MNE-BIDS writes them: numbers of seconds, n/a, codes and samples."""
    rng = np.random.default_rng(0)
    onset = np.cumsum(rng.uniform(2, 4, n)).round(4)
    types = rng.choice(["happy face", "house", "tool"], n)
    made = {"onset": onset, "duration": 1.5, "trial_type": types, "response_time": np.nan}
    made |= {"value": pd.factorize(types)[0] + 1, "sample": (onset * 250).astype(int)}
    frame = pd.DataFrame(made | columns)
    frame.to_csv(path, sep="\t", index=False, na_rep="n/a")
    return frame


def test_events_of_bids_are_stimuli_in_time(tmp_path):
    files = [f"images/{number % 24:02}.png" if number % 4 else np.nan for number in range(48)]
    path = tmp_path / "sub-01_task-see_run-01_events.tsv"
    events = write_events(path, stim_file=files, reward=np.arange(48) % 5 / 2)
    stimuli = read_csv(path)
    kinds = {feature.name: feature.kind for feature in stimuli.features}
    assert kinds == {"trial_type": "nominal", "reward": "ordered"}
    assert stimuli.level == "stimulus" and group_name(stimuli) == "block"
    np.testing.assert_allclose(times_in_lags(stimuli, "8s"), events["onset"] / 8)
    names = stimuli.table["stimulus"].tolist()
    assert names[1:4] == files[1:4] and names[0] == f"{events['trial_type'][0]} 1"
    assert any("named by their stim_file, or else their type" in note for note in stimuli.notes)
    assert "_sample" not in [entry.name for entry in stimulus_candidates(stimuli)]


def test_events_without_files_are_named_by_their_types(tmp_path):
    events = write_events(tmp_path / "events.tsv", run=np.repeat([1, 2], 24))
    stimuli = read_csv(tmp_path / "events.tsv")
    counts = events.groupby("trial_type").cumcount() + 1
    assert stimuli.table["stimulus"].tolist() == [
        f"{kind} {n}" for kind, n in zip(events["trial_type"], counts, strict=True)
    ]
    assert presentation_runs(stimuli).tolist() == np.repeat([0, 1], 24).tolist()


def test_events_that_are_none_are_refused_in_a_sentence(tmp_path):
    path = tmp_path / "events.tsv"
    write_events(path, onset=["n/a"] + [1.0] * 47)
    with pytest.raises(InputError, match="row 1 of the column 'onset' has 'n/a'; expected a num"):
        read_csv(path)
    write_events(path, trial_type=np.nan)
    with pytest.raises(InputError, match=r"events\.tsv has no feature"):
        read_csv(path)


def test_events_of_several_runs_are_to_be_put_together(tmp_path):
    for run in (1, 2):
        write_events(tmp_path / f"run-0{run}_events.tsv")
    with pytest.raises(InputError, match=r"found 2 tables, 'run-01_events\.tsv', 'run-02"):
        AnalysisSpec(str(tmp_path / "run-*_events.tsv")).load_stimuli()


def test_durations_of_words_are_a_feature(tmp_path):
    words = [f"word{number}" for number in range(N)]
    frame = table(onset=np.arange(N) / 2, duration=np.arange(N) % 7).assign(stimulus=words)
    assert "duration" in [feature.name for feature in read(tmp_path, frame).features]


def test_words_of_a_sentence_stay_in_one_block():
    rows = [
        (f"the cat {n} sat on a mat", index, "noun" if index in (1, 6) else "other", n * 7 + index)
        for n in range(30)
        for index in range(7)
    ]
    frame = pd.DataFrame(rows, columns=["sentence", "word_index", "class", "when"])
    stimuli = read_csv(frame.to_csv(index=False).encode(), name="w", roles={"when": "order"})
    blocks = pd.Series(stimuli.groups).groupby(frame["sentence"]).nunique()
    assert blocks.max() == 1
    assert group_name(stimuli) == "block"
    assert {"block", "sentence", "place"} <= set(recurring_units(stimuli))


@pytest.mark.parametrize(
    ("column", "cells", "role", "says"),
    [
        ("when", ["now"] + [1] * (N - 1), "order", "row 1 of the column 'when' has 'now'"),
        ("part", [""] + ["x"] * (N - 1), "run", "row 1 of the column 'part' has ''"),
    ],
)
def test_what_is_no_order_or_run_is_refused(tmp_path, column, cells, role, says):
    with pytest.raises(InputError, match=says):
        read(tmp_path, table(**{column: cells}), roles={column: role})


def test_an_onset_of_letters_is_a_feature(tmp_path):
    stimuli = read(tmp_path, table(onset=["str", "pl"] * 100))
    assert "onset" in [feature.name for feature in stimuli.features]


def test_given_folds_are_taken(tmp_path):
    given = np.random.default_rng(0).permutation(np.arange(N) % 4) + 1
    stimuli = read(tmp_path, table(split=given))
    assert stimulus_folds(stimuli, "sentences", 5, 0).tolist() == (given - 1).tolist()


def test_given_test_stimuli_are_fold_0_and_the_others_are_divided(tmp_path):
    is_test = np.arange(N) % 3 == 0
    stimuli = read(tmp_path, table(split=np.where(is_test, "test", "train")))
    folds = stimulus_folds(stimuli, "sentences", 5, 0)
    assert ((folds == 0) == is_test).all()
    assert np.bincount(folds)[1:].min() >= 33


def test_given_folds_that_cannot_be_are_refused(tmp_path):
    two = read(tmp_path, table(split=["a", "b"] * 100))
    with pytest.raises(InputError, match="at least 3 folds"):
        stimulus_folds(two, "sentences", 5, 0)
    torn = read(tmp_path, table(split=np.arange(N) % 4, block=np.arange(N) // 5))
    with pytest.raises(InputError, match="block of row 1 is in two of the folds"):
        stimulus_folds(torn, "sentences", 5, 0)


def test_labels_are_shifted_inside_runs_by_a_block_at_least(tmp_path):
    onsets = np.tile(np.arange(50)[::-1], 4)
    stimuli = read(tmp_path, table(run=RUNS, when=onsets), roles={"when": "order"})
    values, order = stimuli.values("size"), presentation_order(stimuli)
    of_blocks, shift = time_exchanges(stimuli)
    assert of_blocks.moved(values) == shift.moved(values) == 1
    assert shift.n_labellings(values) == pytest.approx((51.0 - 2 * shift.least) ** 4)
    for givers in shift.draw(200, np.random.default_rng(0)):
        for run in range(4):
            rows = order[run * 50 : run * 50 + 50]
            steps = np.flatnonzero(rows == givers[rows[0]])[0]
            assert givers[rows].tolist() == np.roll(rows, -steps).tolist()
            assert shift.least <= steps <= 50 - shift.least


def test_blocks_change_their_order_inside_runs_and_stay_as_they_are(tmp_path):
    stimuli = read(tmp_path, table(run=RUNS, trial=np.tile(np.arange(50), 4)))
    way, _ = time_exchanges(stimuli)
    sizes = np.bincount(presentation_runs(stimuli)[np.unique(stimuli.groups, return_index=True)[1]])
    expected = np.prod([math.factorial(size) for size in sizes])
    assert way.n_labellings(stimuli.values("size")) == pytest.approx(expected)
    drawn = way.draw(50, np.random.default_rng(0))
    for givers in drawn:
        assert sorted(givers) == list(range(N))
        for run in range(4):
            given = givers[run * 50 : run * 50 + 50]
            assert set(given) == set(range(run * 50, run * 50 + 50))
            # Where two neighbours were no neighbours before, a block ends.
            breaks = np.flatnonzero(np.diff(given) != 1)
            assert (stimuli.groups[given[breaks]] != stimuli.groups[given[breaks + 1]]).all()
    assert len({tuple(givers) for givers in drawn}) > 40


def test_blocks_begin_where_a_lasting_feature_changes(tmp_path):
    stimuli = with_blocks(read(tmp_path, table()), 24)
    starts = np.flatnonzero(np.diff(stimuli.groups)) + 1
    assert (starts % 10 == 0).all() and len(starts) >= 6
    shuffled = table().assign(topic=np.random.default_rng(3).permutation(table()["topic"]))
    apart = with_blocks(read(tmp_path, shuffled), 24)
    assert (np.flatnonzero(np.diff(apart.groups)) + 1).tolist() == [24, 48, 72, 96, 120, 144, 168]


def test_a_feature_of_blocks_is_permuted_over_blocks_too(tmp_path):
    stimuli = read(tmp_path, table(trial=np.arange(N), block=np.arange(N) // 10))
    units = [way.unit for way in exchanges(stimuli, np.arange(N) % 5, "topic")]
    assert units == ["block", MOMENT, MOMENT]
    assert "stimulus" in [way.unit for way in exchanges(stimuli, np.arange(N) % 5, "size")]


def test_blocks_of_a_length(tmp_path):
    stimuli = with_blocks(read(tmp_path, table(topic=["a", "b"] * 100)), 30)
    assert np.bincount(stimuli.groups).tolist() == [30] * 5 + [50]
    assert group_name(stimuli) == "block"
    with pytest.raises(InputError, match="from 2 to 100"):
        with_blocks(stimuli, 101)
