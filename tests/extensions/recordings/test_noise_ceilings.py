"""Subjects of one file as systems, noise ceilings of the RSA with them, and views over time."""

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import RIDGE
from rsatoolbox.inference import noise_ceiling as theirs
from rsatoolbox.rdm import RDMs
from scipy.spatial.distance import pdist, squareform
from scipy.stats import rankdata, spearmanr

from mlem_core import AnalysisSpec, Store, run
from mlem_core.analysis.context import SelectionContext
from mlem_core.cli.commands import main
from mlem_core.extensions.recordings.noise_ceilings import NOISE_CEILINGS
from mlem_core.extensions.recordings.stage import find_comparison
from mlem_core.figures.context import FIGURES, FigureContext
from mlem_core.figures.naming import naming

SUBJECTS, STIMULI, TIMES, ONSET = 4, 60, range(-100, 300, 20), 60


@pytest.fixture(scope="module")
def meg(tmp_path_factory):
    """A folder with stimuli, arrays of four subjects over time, and what all of them share."""
    folder, rng = tmp_path_factory.mktemp("meg"), np.random.default_rng(0)
    tone, size = rng.integers(0, 2, (2, STIMULI))
    texts = [f"tone {n}" for n in range(STIMULI)]
    table = {"sentence": texts, "tone": [f"t{x}" for x in tone], "size": [f"s{x}" for x in size]}
    pd.DataFrame(table).to_csv(folder / "tones.csv", index=False)
    common, along = rng.standard_normal((STIMULI, 30)), rng.standard_normal(30)
    after = common + 1.5 * np.outer(tone - 0.5, along)
    shape = SUBJECTS, STIMULI, 30
    arrays = {
        f"{ms} ms": rng.standard_normal(shape) + (after if ms >= ONSET else common) for ms in TIMES
    }
    # In any order: what the axis says is by number.
    np.savez(folder / "meg.npz", **dict(sorted(arrays.items())))
    np.savez(folder / "truth.npz", before=common, after=after)
    for subject in range(SUBJECTS):
        np.savez(folder / f"s{subject}.npz", **{at: arrays[at][subject] for at in sorted(arrays)})
    return folder, arrays


def build_spec(folder, files, **more):
    named = tuple((name, str(folder / f"{file}.npz")) for name, file in files.items())
    return AnalysisSpec(str(folder / "tones.csv"), representations=named, **RIDGE | more)


def as_condensed(rows):
    return pdist(rows).round(1)  # with ties


def as_square(rows):
    return squareform(pdist(rows))


@pytest.mark.parametrize("form", [np.asarray, as_square, as_condensed])
def test_ceilings_are_those_of_rsatoolbox(meg, tmp_path, form):
    folder, arrays = meg
    of_subjects = [form(rows) for rows in arrays["100 ms"]]
    np.savez(folder / "it.npz", IT=np.stack(of_subjects))
    given = {"precomputed": ("it",)} if form != np.asarray else {"subjects": "it=all"}
    analysis = run(build_spec(folder, {"it": "it"}, **given), Store(tmp_path))
    names = tuple(f"it@subject{n}" for n in (1, 2, 3, 4))
    assert analysis.spec.groups == (("it", names),)
    (found,) = NOISE_CEILINGS.get(
        SelectionContext.from_analysis(analysis, Store(tmp_path))
    ).itertuples(index=False)
    condensed = {as_square: squareform, np.asarray: pdist}.get(form, np.asarray)
    rdms = RDMs(np.stack([condensed(one) for one in of_subjects]))
    boot = theirs.boot_noise_ceiling(rdms, method="spearman")
    _, test, rest = theirs.sets_leave_one_out_rdm(rdms)
    crossed = theirs.cv_noise_ceiling(rdms, rest, test, method="spearman")
    assert found[:2] == ("it", 0) and found.n == SUBJECTS
    np.testing.assert_allclose(found[2:4], boot, atol=1e-9)
    np.testing.assert_allclose(found[2:4], crossed, atol=1e-9)


def test_ceilings_are_of_the_pairs_that_are_compared_and_of_several_files(meg, tmp_path):
    folder, arrays = meg
    files = {f"s{n}": f"s{n}" for n in range(SUBJECTS)}
    at, groups = TIMES.index(200), (("brains", tuple(files)),)
    more = {"groups": groups, "pairs": 900, "layers": (at,)}
    analysis = run(build_spec(folder, files, **more), Store(tmp_path))
    found = NOISE_CEILINGS.get(SelectionContext.from_analysis(analysis, Store(tmp_path))).set_index(
        "layer"
    )
    i, j = analysis.design.ends(np.arange(analysis.design.n_pairs))
    ranks = [rankdata(squareform(pdist(rows))[i, j]) for rows in arrays["200 ms"]]
    lower = [spearmanr(own, sum(ranks) - own)[0] for own in ranks]
    upper = [spearmanr(own, sum(ranks))[0] for own in ranks]
    assert len(ranks[0]) < STIMULI * (STIMULI - 1) // 2
    expected = np.mean(lower), np.mean(upper)
    np.testing.assert_allclose(found.loc[at, ["lower", "upper"]].astype(float), expected, atol=1e-9)
    # Where one file has other names than the others, a number is not one layer.
    odd = {f"{ms + 20} ms": arrays[f"{ms} ms"][0] for ms in TIMES}
    np.savez(folder / "odd.npz", **odd)
    other = run(build_spec(folder, files | {"s0": "odd"}, **more | {"pairs": 0}), Store(tmp_path))
    assert NOISE_CEILINGS.get(SelectionContext.from_analysis(other, Store(tmp_path))).empty


@pytest.mark.slow
def test_the_onset_of_a_feature_and_the_ceiling_are_seen_over_time(meg, tmp_path, monkeypatch):
    folder, _ = meg
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "store"))
    files = [f"--representations={name}={folder / f'{name}.npz'}" for name in ("meg", "truth")]
    asked = ["--subject=meg=all", "--axis=meg=time:ms", "--estimator=ridge", "--values=none"]
    stimuli, out = f"--stimuli={folder / 'tones.csv'}", tmp_path / "out"
    assert main(["analyze", stimuli, *files, *asked, f"--out={out}"]) == 0
    onset, mean = [*TIMES].index(ONSET), pd.read_csv(out / "groups.csv").query("group == 'meg'")
    mean = mean.pivot(index="layer", columns="feature", values="importance")
    assert mean["size"].abs().max() < 0.1 and mean["tone"][:onset].abs().max() < 0.1
    assert mean["tone"][onset:].min() > 0.3
    ceilings = pd.read_csv(out / "noise_ceilings.csv")
    assert list(ceilings) == ["group", "layer", "lower", "upper", "n"]
    assert len(ceilings) == len(TIMES) and set(ceilings["n"]) == {SUBJECTS}
    table = pd.read_csv(out / "model_ceilings.csv")
    # What the subjects share lies between the ceilings, the features between chance and these.
    for number, held in enumerate((table["group_layer"] < onset, table["group_layer"] >= onset)):
        truth = table[held & (table["layer"] == number)]
        assert truth["share_of_lower"].mean() > 1 > truth["share_of_upper"].mean()
    rsa, row = pd.read_csv(out / "similarity_rsa.csv", index_col="layer"), truth.iloc[0]
    own = [rsa.loc["truth:1", f"meg@subject{n}:{row['group_layer']}"] for n in (1, 2, 3, 4)]
    np.testing.assert_allclose(row["rsa"], np.mean(own), atol=1e-9)
    shares = table[table["model"] == "features"].set_index("group_layer")["share_of_upper"]
    assert shares[:onset].max() < 0.3 < shares[onset:].min()

    spec = build_spec(
        folder, {"meg": "meg", "truth": "truth"}, subjects="meg=all", axes="meg=time:ms"
    )
    analysis = run(spec, Store())
    chosen = analysis.select(layers=[one for one in analysis.layers if one[0] != "truth"])
    shown = FigureContext(analysis, chosen, Store())
    found = find_comparison(shown)
    np.testing.assert_allclose(found.ceilings["upper"], ceilings["upper"])
    assert {*found.models["model"]} == {"features"}
    for name, panels in (("profiles", SUBJECTS), ("group_profiles", 1)):
        with naming(shown.names):
            drawn = FIGURES[name].draw(shown)
        bands = [one for one in drawn.figure.data if one.name == "noise ceiling"]
        assert len(bands) == panels and "over time" in f"{drawn.title} {drawn.caption}"
        np.testing.assert_allclose(bands[0].y[: len(TIMES)], ceilings["upper"])
        axis = drawn.figure.layout.xaxis
        assert axis.title.text == "time (ms)" and axis.ticktext[0] == "-100 ms"
        hover = [text for one in drawn.figure.data for text in one.hovertext or ()]
        assert any("60 ms" in text for text in hover) and "layer" not in " ".join(hover)
