import numpy as np
import pandas as pd
import pytest
from helpers.inputs import for_each, refused
from scipy.spatial.distance import squareform
from scipy.stats import spearmanr
from sklearn.linear_model import Ridge

from mlem_core.cli.commands import main
from mlem_core.extensions.systems.command import systems_table
from mlem_core.extensions.systems.group_spec import labels_by_factor
from mlem_core.extensions.systems.model_groups import Squares
from mlem_core.extensions.systems.properties import Properties, kind_and_values, read_systems
from mlem_core.extensions.systems.property_tests import (
    _codes,
    _units,
    intraclass_correlation,
    permutation_tests,
)
from mlem_core.extensions.systems.second_level import (
    Divisions,
    fold_fits,
    fold_orders,
    second_level,
)


def systems(n, rng):
    """Properties of n systems, one of them known of some only, and distances by the first."""
    properties = Properties(
        {
            "date": rng.random(n),
            "family": [f"f{at}" for at in rng.integers(0, 4, n)],
            "size": np.where(rng.random(n) < 0.2, np.nan, rng.random(n)),
        }
    )
    noise = rng.random((n, n)) * 0.1
    distances = np.sqrt(0.2 + properties.distances()[0] ** 2 + (noise + noise.T) / 2)
    np.fill_diagonal(distances, 0)
    return properties, distances


@pytest.mark.slow
def test_it_is_ridge_on_explicit_pairs_and_names_the_planted_property():
    properties, distances = systems(20, np.random.default_rng(0))
    found = second_level({"rsa": Squares(distances**2)}, properties)
    of = found.importances.set_index("property")
    assert of.loc["date", "lower"] > 0.3 and of.loc["date", "p"] < 0.01
    assert (of.loc[["family", "size"], "importance"].abs() < 0.1).all()

    divisions = Divisions.from_targets(distances**2, properties, np.arange(20))
    falls = []
    for division, folds in enumerate(divisions.folds):
        for fold in range(folds.max() + 1):
            train, tested = (np.flatnonzero(own) for own in (folds != fold, folds == fold))
            i, j = (train[own] for own in np.triu_indices(len(train), 1))
            target = distances[i, j] ** 2
            target = (target - target.min()) / np.ptp(target)
            ridge = Ridge(divisions.alphas[division, fold], positive=True, tol=1e-12)
            weights = ridge.fit(properties.distances()[:, i, j].T ** 2, target).coef_
            a, b = np.triu_indices(len(tested), 1)
            squares = properties.distances()[:, tested[:, None], tested] ** 2
            predicted, truth = weights @ squares[:, a, b], distances[tested[a], tested[b]]
            rho = spearmanr(predicted, truth).statistic if np.ptp(predicted) else 0.0
            scores = divisions.scores[division * (folds.max() + 1) + fold]
            assert scores[0] == pytest.approx(rho, abs=1e-9)
            for order in fold_orders(len(tested), 0):
                moved = squares.copy()
                moved[0] = squares[0][np.ix_(order, order)]
                drawn = weights @ moved[:, a, b]
                fall = rho - (spearmanr(drawn, truth).statistic if np.ptp(drawn) else 0.0)
                falls.append((fold, division, fall))
    by_fold = pd.DataFrame(falls).groupby([0, 1])[2].mean()
    assert of.loc["date", "importance"] == pytest.approx(by_fold.mean(), abs=1e-9)


@for_each(
    "names, groups, kinds, note",
    (["constant"], (), (), "no property differs; expected one that some systems share"),
    (["constant", "number", "unknown"], (), (), "no property differs"),
    (["constant"], (("g", ("constant",)),), (), "no property differs"),
    (["halves"], (), (("halves", "ignore"),), "no property differs"),
    (["each"], (), (), "another label in each"),
    (["each", "constant", "halves"], (), (), "another label in each"),
)
@for_each("is_measured", True, False)
def test_properties_that_tell_no_systems_apart_are_named(names, groups, kinds, note, is_measured):
    distances = squareform(np.random.default_rng(0).random(36))
    cells = {
        "constant": ["a"] * 9,
        "number": ["1"] * 9,
        "unknown": [None] * 9,
        "each": list("abcdefghi"),
        "halves": list("xxxxyyyyy"),
    }
    properties = Properties.from_cells({name: cells[name] for name in names}, groups, kinds)
    measured = {"rsa": Squares(distances)} if is_measured else {}
    found = second_level(measured, properties, groups=list("ABCDEFGHI"))
    if properties.values and not is_measured:
        note = "no distances over halves"
    assert any(note in line for line in found.lines())
    assert [*found.importances["property"]] == [*properties.values] * is_measured


def test_a_division_without_three_folds_has_the_smallest_penalty():
    properties, distances = systems(8, np.random.default_rng(1))
    assert (fold_fits(distances**2, properties, np.arange(8) % 2).alpha == 1e-4).all()
    few = Properties({"date": np.arange(6.0)})
    assert "expected at least 8" in second_level({"rsa": Squares(np.ones((6, 6)))}, few).notes[0]


@pytest.mark.parametrize("clustered", [0.0, 1.0])
def test_numbers_that_families_share_are_exchanged_by_families(clustered):
    family = np.repeat(np.arange(10), 4)
    rejected = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        date = clustered * 5 * rng.random(10)[family] + rng.random(40)
        pairs = rng.standard_normal((10, 10))[np.ix_(family, family)] * 0.2
        noise = rng.standard_normal((40, 40)) * 0.1
        similarity = pairs + pairs.T + noise + noise.T + 0.3 * (family[:, None] == family)
        factors = {"date": date, "family": [str(one) for one in family]}
        test = permutation_tests(similarity, factors, n_permutations=99, seed=seed)[0][0]
        units, _ = _units([date], [_codes(factors["family"])])
        assert (units.max() == 9) == (intraclass_correlation(date, family) > 0.3)
        rejected += test.p <= 0.05
    assert rejected <= 8


def test_systems_drawn_once_have_the_importances_of_their_pairs_alone():
    properties, distances = systems(16, np.random.default_rng(2))
    divisions = Divisions.from_targets(distances**2, properties, np.arange(16))
    at = np.delete(np.arange(16), [3, 8])
    kept = np.isin(np.arange(16), at)
    expected = divisions.importances(distances[None] ** 2, kept[:, None] & kept)
    drawn = divisions.select_systems(at).importances(distances[np.ix_(at, at)][None] ** 2)
    np.testing.assert_allclose(drawn, expected, atol=1e-12)


def test_dates_of_families_in_one_architecture_each_are_exchanged_by_families():
    family = np.repeat(np.arange(8), 3)
    labels = {"family": [*map(str, family)], "architecture": [*map(str, family // 4)]}
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((24, 24))
    dates = {"date": family + 0.1 * rng.random(24)}
    test = permutation_tests(noise + noise.T, dates | labels, seed=1)[0][0]
    assert test.smallest == pytest.approx(1 / 576)  # 4! orders in each architecture
    # Three families have six orders.
    few = Properties({"date": family[:9] + rng.random(9), "family": [*map(str, family[:9])]})
    found = second_level({"rsa": Squares(systems(9, rng)[1] ** 2)}, few)
    assert "9 systems are too few for a conclusion on date" in found.lines()[-1]
    assert np.isnan(found.importances.set_index("property").loc["date", "p"])


def test_properties_are_read_as_dates_sizes_and_classes(tmp_path):
    np.testing.assert_allclose(
        kind_and_values(["2023-07", None, "2024-01-01"])[1], [2023.4956, np.nan, 2024], atol=1e-3
    )
    np.testing.assert_allclose(kind_and_values(["1e6", "1e9"])[1], [6, 9])
    assert kind_and_values(["rope", "", None])[1] == ["rope", "", ""]
    assert kind_and_values(["1", "9"], "log")[1] == pytest.approx(np.log10([1, 9]))
    asked = Properties.from_cells(
        {"a": ["1", "2"], "b": ["1", "2"]}, (), {"a": "class", "b": "ignore"}.items()
    )
    assert dict(asked.values) == {"a": ["1", "2"]}
    path = tmp_path / "systems.csv"
    path.write_text("system,group,size\nminilm,a,1\nbrain.npz,a,\ngpt2,gpt2,3\n")
    table = read_systems(path)
    assert table["models"] == ("minilm", "gpt2") and table["groups"] == (
        ("a", ("minilm", "brain")),
    )
    assert table["representations"] == (("brain", str(tmp_path / "brain.npz")),)
    assert dict(table["labels"]) == {"minilm": ("size:1",), "gpt2": ("size:3",)}
    path.write_text("system,size\nminilm,1\nminilm,2\n")
    with refused("'minilm' again", "row 2"):
        read_systems(path)
    path.write_text("system,_note,date\nminilm,a;b,2024-07\ngpt2,,2024-13\n")
    with refused("systems.csv", "row 2", "'date'", "'2024-13'"):
        read_systems(path)
    path.write_text('system,size\nminilm,"1,5"\n')
    with refused("row 1", "'size'", "'1,5'", "without comma"):
        read_systems(path)
    together = Properties(
        {"a": np.arange(9.0), "b": np.arange(9.0) ** 1.1, "c": ["x"] * 5 + ["y"] * 4}
    )
    assert "a with b" in together.notes()[0]
    with refused("unknown property of the group", "'d'"):
        Properties.from_cells({"a": ["1", "2"]}, [("g", ("d",))])


def test_the_table_of_families_has_43_models_of_10_families():
    table = read_systems("families")
    cells = labels_by_factor((), table["labels"], table["models"])
    assert len(table["models"]) == 43 and len(set(cells["family"])) == 10 and not table["groups"]
    kinds = {
        name: kind_and_values([cell or None for cell in own])[0] for name, own in cells.items()
    }
    assert kinds["release_date"] == "date" and kinds["architecture"] == "class"
    assert kinds["parameters"] == kinds["training_tokens"] == "log" and "_source" not in kinds
    # GPT-2's number of parameters as published; of a Mamba no heads are known.
    assert cells["parameters"][table["models"].index("openai-community/gpt2")] == "124439808"
    assert cells["heads"][table["models"].index("state-spaces/mamba-130m-hf")] == ""


@pytest.mark.slow
def test_configurations_fill_the_table_of_systems(tmp_path):
    asked = ["systems", "--model=mini-mamba", "--model=mini-gpt2", f"--out={tmp_path / 's.csv'}"]
    assert main(asked) == 0
    table = pd.read_csv(tmp_path / "s.csv").set_index("system")
    assert table.loc["mini-gpt2", ["architecture", "layers", "heads"]].tolist() == ["gpt2", 6, 4]
    assert table.loc["mini-mamba", "positional_encoding"] == "none"
    _, notes = systems_table(["no/such-model"])
    assert "only the name is known" in notes[0]
