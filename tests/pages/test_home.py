"""The list of one's analyses: found, named, compared, duplicated, deleted and brought back."""

import re

import pytest
from screens import Screen, jobs_in, plain

from mlem_core.tasks import notes


def line(screen, job):
    """What the list says of an analysis."""
    (row,) = [one for one in screen.app.container if one.key == f"line of {job}"]
    return plain("\n".join(one.value for kind in ("markdown", "caption") for one in row.get(kind)))


def test_each_analysis_is_told_from_the_others(mine):
    screen = Screen()
    first, folds, seed = (line(screen, job.id) for job in mine.jobs)
    assert "folds 4" in folds and "seed 7" in seed
    assert "folds 4" not in first and "seed" not in first
    assert "one and two" in first and "3 features: noun, position and kind" in first
    assert "/not/there" in seed and "/not/there" not in first


@pytest.mark.slow
def test_a_name_and_a_note_stand_wherever_the_analysis_does(mine):
    job, other = mine.jobs[1].id, mine.jobs[0].id
    screen = Screen().unfold(f"more {job}")
    screen.choose(f"name {job}", "My words <b>*bold*</b>", "text_input")
    screen.choose(f"note {job}", "look at kind: عربي 中文", "text_area")
    # A name that one window gives, and a note of another: neither is lost.
    Screen().unfold(f"more {other}").choose(f"note {other}", "noted", "text_area")
    notes.change_notes(other, mine.store, lambda old: old.named("Named"))
    there = Screen()
    assert "My words <b>*bold*</b>" in line(there, job) and "عربي 中文" in line(there, job)
    assert {"Named", "noted"} <= set(re.findall(r"\w+", line(there, other)))
    explore = Screen("explore", analysis=job)
    assert "My words <b>*bold*</b>" in explore.said
    assert "My words <b>*bold*</b>" in explore.widget("selectbox", "Analysis").options
    # Emptied, it is called by what was chosen again.
    screen.choose(f"name {job}", "", "text_input")
    assert "folds 4" in line(Screen(), job)


def test_two_are_compared_side_by_side(own):
    first, second = own.jobs[1].id, own.jobs[0].id
    screen = Screen().unfold(f"more {first}").choose(f"compare {first}", second)
    assert screen.title == "Two analyses" and screen.address["versus"] == [first, second]
    assert "folds (4; 3)" in screen.said
    assert {"one, first", "one, second"} <= screen.panels("two-profiles")
    # Whoever chooses the other one changes their places.
    assert screen.choose("versus 0", second).address["versus"] == [second, first]
    assert "folds (3; 4)" in screen.said


@pytest.mark.slow
def test_what_is_deleted_is_brought_back_with_its_notes(mine):
    job = mine.jobs[1].id
    notes.change_notes(job, mine.store, lambda old: old.named("Four folds").noted("a note"))
    screen = Screen(analysis=job).unfold(f"more {job}").press(f"delete {job}")
    assert job not in jobs_in(mine.store) and screen.address.get("analysis") != [job]
    (undo,) = [key for key in screen.buttons if key.startswith("undo ")]
    later = Screen()  # which a reload does not forget
    assert f"open {job}" not in later.buttons and "Four folds" in later.said
    assert "deleted" in Screen("explore", analysis=job).errors[0]
    later.press(undo)
    assert "Four folds" in line(later, job) and "a note" in line(later, job)
    assert Screen("explore", analysis=job).figures


def test_a_duplicate_is_a_form_with_all_choices(own):
    job, before = own.jobs[0], jobs_in(own.store)
    screen = Screen().unfold(f"more {job.id}").press(f"duplicate {job.id}")
    assert screen.title == "New analysis"
    assert re.fullmatch("[0-9a-f]{64}/words.csv", screen.address["stimuli"][0])
    assert re.fullmatch("one=[0-9a-f]{64}/one.npz", screen.address["files"][0])
    # Elsewhere, from the address alone, and run as it is: no other one begins.
    screen = Screen("new", **screen.address).press("Run")
    assert screen.job == job.id and jobs_in(own.store) == before


@pytest.mark.parametrize("page", ["explore", "trust"])
def test_undo_and_reset_take_back_what_was_chosen(own, page):
    screen = Screen(page, analysis=own.jobs[0].id)
    assert screen.buttons["undo"].disabled and screen.buttons["reset"].disabled
    screen.tick_off("kind").tick_off("noun")
    assert screen.address["features"] == ["position"]
    assert screen.press("undo").address["features"] == ["noun", "position"]
    screen.press("reset")
    assert "features" not in screen.address
    assert screen.press("undo").address["features"] == ["noun", "position"]
    assert screen.widget("button_group", "choice features").value == ["noun", "position"]
