"""Fitting from a stream, in shards: as in memory where the sample is the whole table, and as good where it is not."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from gpnn import GPnnRegressor
from gpnn.common.types import Hyperparameters
from gpnn.engines.cpu.neighbors.shards import Shards
from gpnn.errors import FileError, InvalidInputError
from gpnn.regressor.streaming import Sizes, check_memory
from gpnn.stages.sampling import Drawn, Reservoir, draw

N = 3000
QUICK = {"kernel": "exponential", "whitening": "full", "refine": False, "far": False, "random_state": 0, "n_jobs": 1}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=N), rng.normal(size=(200, 3))


def in_batches(X, y, size=700):
    return lambda: ((X[at : at + size], y[at : at + size]) for at in range(0, len(y), size))


@pytest.fixture(scope="module")
def both(data, tmp_path_factory):
    X, y, _ = data
    out = tmp_path_factory.mktemp("models") / "model.gpnn"
    return GPnnRegressor(**QUICK).fit(X, y), GPnnRegressor(**QUICK).fit_stream(in_batches(X, y), out, n_shards=5), out


def same(one, other):
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.variance, other.variance)


def test_shards_answer_as_one_index_in_memory_bit_for_bit(both, data):
    in_memory, in_shards, out = both
    assert isinstance(in_shards.index_, Shards)
    same(in_memory.predict_distribution(data[2]), in_shards.predict_distribution(data[2]))
    loaded = GPnnRegressor.load(out)
    same(in_memory.predict_distribution(data[2]), loaded.predict_distribution(data[2]))
    np.testing.assert_array_equal(
        np.column_stack(in_memory.predict_interval(data[2])), np.column_stack(loaded.predict_interval(data[2]))
    )
    found, expected = (model.kneighbors(data[2][:20]) for model in (loaded, in_memory))
    np.testing.assert_array_equal(found.indices, expected.indices)


def test_batches_and_cuts_leave_no_trace(both, data, tmp_path):
    X, y, queries = data
    other = GPnnRegressor(**QUICK).fit_stream(in_batches(X, y, 1), tmp_path / "other.gpnn", n_shards=2)
    same(both[1].predict_distribution(queries), other.predict_distribution(queries))


def many_ties():
    """Rows on a grid, each several times with another target; queries on the grid and between."""
    rng = np.random.default_rng(4)
    X = rng.integers(-4, 5, size=(2000, 3)).astype(float)
    queries = np.concatenate([X[:100], X[100:200] + 0.5])
    return X, X[:, 0] + rng.normal(size=len(X)), queries


def test_rows_as_far_as_each_other_are_the_same_ones_everywhere(tmp_path):
    X, y, queries = many_ties()
    settings = {"params": Hyperparameters(1.0, 1.0, 0.5), "n_neighbors": 40, "far": False, "random_state": 0}
    in_memory = GPnnRegressor(**settings).fit(X, y)
    for halo in (0, 0.9):
        model = GPnnRegressor(**settings).fit_stream(in_batches(X, y), tmp_path / "model.gpnn", n_shards=6, halo=halo)
        assert (model.fit_report_["rows_in_halos"] > 0) == (halo > 0)
        assert sum(model.fit_report_["rows_by_shard"]) == len(X)
        assert 0 <= model.fit_report_["asked"]["by_one_shard"] <= model.fit_report_["asked"]["queries"] == 1000
        same(in_memory.predict_distribution(queries), model.predict_distribution(queries))
        np.testing.assert_array_equal(in_memory.kneighbors(queries).indices, model.kneighbors(queries).indices)


def test_border_rows_let_one_shard_answer_and_change_nothing(data, tmp_path):
    X, y, queries = data
    settings, plain = QUICK | {"n_neighbors": 15}, tmp_path / "plain.gpnn"
    in_memory = GPnnRegressor(**settings).fit(X, y)
    with_halos = GPnnRegressor(**settings).fit_stream(in_batches(X, y), tmp_path / "m.gpnn", n_shards=5, halo=0.9)
    without = GPnnRegressor(**settings).fit_stream(in_batches(X, y), plain, n_shards=5)
    with_halos.save(tmp_path / "copy.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "copy.gpnn")
    for one in (with_halos, without, loaded):
        same(in_memory.predict_distribution(queries), one.predict_distribution(queries))
    shares = [one.index_.by_one_shard / one.index_.queries for one in (loaded, without)]
    assert shares[0] > 0.8 > shares[1] + 0.1
    joint, expected = (one.predict_distribution(queries[:30], joint=True) for one in (loaded, in_memory))
    np.testing.assert_allclose(joint.covariance(), expected.covariance(), rtol=1e-3, atol=1e-6)
    with pytest.raises(InvalidInputError, match=r"halo = 1\.5"):
        GPnnRegressor(**QUICK).fit_stream(in_batches(X, y), tmp_path / "other.gpnn", halo=1.5)


def test_a_loaded_model_explains_is_copied_and_says_what_it_cannot(both, data, tmp_path):
    in_memory, in_shards, _ = both
    np.testing.assert_array_equal(in_shards.explain(data[2][:3]).indices, in_memory.explain(data[2][:3]).indices)
    in_shards.save(tmp_path / "copy.gpnn")
    same(GPnnRegressor.load(tmp_path / "copy.gpnn").predict_distribution(data[2]),
         in_memory.predict_distribution(data[2]))  # fmt: skip
    with pytest.raises(InvalidInputError, match="shards on disk"):
        in_shards.partial_fit(data[0][:2], data[1][:2])
    reference = GPnnRegressor.load(tmp_path / "copy.gpnn").set_params(engine="reference").predict(data[2][:5])
    np.testing.assert_allclose(reference, in_memory.predict(data[2][:5]), atol=1e-3)


def test_a_sample_learns_and_all_rows_answer(data, tmp_path, monkeypatch):
    X, y, queries = data
    monkeypatch.setattr(Sizes, "sample", property(lambda self: 1600))
    model = GPnnRegressor(**{**QUICK, "refine": True, "far": True}).fit_stream(
        in_batches(X, y), tmp_path / "model.gpnn", n_shards=3
    )
    report = model.fit_report_
    assert (report["n"], report["n_sample"], report["shards"]) == (N, 1200, 3)
    assert len(model.index_.order) == N  # judges too: each is only left out of its own prediction
    assert report["asked"]["queries"] >= report["asked"]["by_one_shard"] > 0
    truth = np.sin(2 * queries[:, 0]) + queries[:, 1]
    law = GPnnRegressor.load(tmp_path / "model.gpnn").predict_distribution(queries)
    assert np.sqrt(np.mean((law.mean - truth) ** 2)) < 0.1
    assert 0.8 < np.mean(((truth - law.mean) ** 2 + 0.1**2) / law.variance) < 1.25  # 0.1: the noise of y
    assert law.support is not None
    assert set(model._far.rows) <= set(range(N))


def test_rows_set_aside_or_that_stand_for_something_else_are_no_neighbours(data, tmp_path, monkeypatch):
    X, y, queries = data
    y = y.copy()
    y[::50] = -9999.0
    monkeypatch.setattr(Sizes, "sample", property(lambda self: 1600))
    settings = {**QUICK, "return_rows": False, "calibration_size": 300}
    with pytest.warns(match="look wrong"):
        model = GPnnRegressor(**settings).fit_stream(in_batches(X, y), tmp_path / "model.gpnn", n_shards=2)
    numbers = np.asarray(model.index_.order)
    assert not np.isin(np.arange(0, N, 50), numbers).any()
    assert not np.isin(model.calibration_rows_, numbers).any()
    assert np.abs(model.predict(queries)).max() < 10


def test_queries_of_new_groups_or_later_times(tmp_path, few_steps, monkeypatch):
    rng = np.random.default_rng(5)
    X, groups = rng.normal(size=(900, 2)), np.repeat([f"patient {k}" for k in range(30)], 30)
    y = X[:, 0] + np.repeat(rng.normal(size=30), 30) + 0.1 * rng.normal(size=900)

    def batches(labels):
        return lambda: ((X[at : at + 200], y[at : at + 200], labels[at : at + 200]) for at in range(0, 900, 200))

    settings = QUICK | {"refine": "columns", "whitening": "diagonal", "far": True}
    out, queries = tmp_path / "model.gpnn", rng.normal(size=(50, 2))
    model = GPnnRegressor(**settings).fit_stream(batches(groups), out, n_shards=2, to_come="groups")
    in_memory = GPnnRegressor(**settings).fit(X, y, groups=groups)
    same(in_memory.predict_distribution(queries), model.predict_distribution(queries))
    monkeypatch.setattr(Sizes, "sample", 600)
    for to_come, labels in (("groups", groups), ("times", np.arange(900.0))):
        part = GPnnRegressor(**settings).fit_stream(batches(labels), out, n_shards=2, to_come=to_come)
        assert part._far.mixture.edge == -np.inf  # all queries are taken to be such
        assert np.median(part.predict(queries, return_std=True)[1]) > 0.2  # the noise within a group is 0.1
    with pytest.raises(InvalidInputError, match=r"to_come = None, and batches\(\) gives a third array"):
        GPnnRegressor(**settings).fit_stream(batches(groups), out)
    with pytest.raises(InvalidInputError, match="gives nothing beside X and y"):
        GPnnRegressor(**settings).fit_stream(in_batches(X, y), out, to_come="times")


def test_the_paper_s_recipe_and_given_parameters(data, tmp_path):
    X, y, queries = data
    params = Hyperparameters(1.0, 1.0, 0.05)
    settings = {**QUICK, "params": params, "n_neighbors": 30, "mean": "linear"}
    model = GPnnRegressor(**settings).fit_stream(in_batches(X, y), tmp_path / "model.gpnn", n_shards=4)
    same(model.predict_distribution(queries), GPnnRegressor(**settings).fit(X, y).predict_distribution(queries))


@pytest.mark.parametrize(
    ("text", "number"), [("4GiB", 2**32), ("600 MB", 6 * 10**8), ("1.5gib", 3 * 2**29), (2**30, 2**30)]
)
def test_memory_is_said_as_people_say_it(text, number):
    assert check_memory(text) == number


@pytest.mark.parametrize("wrong", ["much", "4 GiBs", 12, "1MiB", None, True, "-4GiB"])
def test_other_memory_is_refused(wrong):
    with pytest.raises(InvalidInputError, match="memory"):
        check_memory(wrong)


def test_what_goes_wrong_leaves_nothing(data, tmp_path):
    X, y, _ = data
    times = []

    def changing():
        times.append(1)
        return in_batches(X[: N - len(times)], y[: N - len(times)])()

    with pytest.raises(InvalidInputError, match="not the same each time"):
        GPnnRegressor(**QUICK).fit_stream(changing, tmp_path / "model.gpnn")
    with pytest.raises(InvalidInputError, match="fewer than two"):
        GPnnRegressor(**QUICK).fit_stream(lambda: [], tmp_path / "model.gpnn")
    with pytest.raises(InvalidInputError, match="patches"):
        GPnnRegressor(holdout="patches").fit_stream(in_batches(X, y), tmp_path / "model.gpnn")
    assert not list(tmp_path.iterdir())


def test_a_killed_fit_leaves_what_was_there_and_the_next_one_starts_clean(both, data, tmp_path):
    both[1].save(tmp_path / "model.gpnn")
    code = f"""
        import os, signal, sys
        sys.path[:] = {sys.path!r}
        import numpy as np
        from gpnn import GPnnRegressor, Hyperparameters
        X = np.random.default_rng(0).normal(size=(500, 2))
        calls = []
        def batches():
            calls.append(1)
            yield X, X[:, 0]
            if len(calls) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
        model = GPnnRegressor(params=Hyperparameters(1.0, 1.0, 0.1), far=False)
        model.fit_stream(batches, {str(tmp_path / "model.gpnn")!r})
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    left = [path.name for path in tmp_path.iterdir()]
    assert len(left) == 2  # the model of before, and what is half-done, hidden
    same(
        GPnnRegressor.load(tmp_path / "model.gpnn").predict_distribution(data[2]), both[0].predict_distribution(data[2])
    )
    both[1].save(tmp_path / "model.gpnn")
    assert [path.name for path in tmp_path.iterdir()] == ["model.gpnn"]


def test_a_damaged_folder_is_named(both, data, tmp_path):
    both[1].save(tmp_path / "model.gpnn")
    shard = tmp_path / "model.gpnn" / "shard-00001.gpnn"
    shard.unlink()
    with pytest.raises(FileError, match="shard-00001"):
        GPnnRegressor.load(tmp_path / "model.gpnn")
    (tmp_path / "model.gpnn" / "shard-00000.gpnn").rename(shard)
    with pytest.raises(FileError):
        GPnnRegressor.load(tmp_path / "model.gpnn")
    with pytest.raises(FileError, match=r"no model\.gpnn in it"):
        GPnnRegressor.load(tmp_path)


def test_a_damaged_shard_is_named_when_it_is_first_asked(both, data, tmp_path):
    both[1].save(tmp_path / "model.gpnn")
    shard = tmp_path / "model.gpnn" / "shard-00002.gpnn"
    content = bytearray(shard.read_bytes())
    content[-2000] ^= 1  # in the targets, which nothing else would show
    shard.unlink()  # saved models share their files
    shard.write_bytes(content)
    model = GPnnRegressor.load(tmp_path / "model.gpnn")
    with pytest.raises(FileError, match=r"shard-00002.*checksum"):
        model.predict(data[2])
    with pytest.raises(FileError, match="shard-00002"):
        model.predict(data[2])
    GPnnRegressor.load(tmp_path / "model.gpnn", verify=False).predict(data[2])
    shard.write_bytes(content[:-64])
    with pytest.raises(FileError, match=r"shard-00002.*bytes long"):
        GPnnRegressor.load(tmp_path / "model.gpnn")


def test_resident_pages_of_shards_are_let_go(both, data):
    model = GPnnRegressor.load(both[2])
    model.index_.memory = 1  # nothing may stay: every answer comes from the file anew
    same(model.predict_distribution(data[2]), both[0].predict_distribution(data[2]))


def test_samples_do_not_depend_on_batches(rng):
    X, y = rng.normal(size=(150_000, 2)), np.arange(150_000.0)
    one, other = Reservoir(1000, seed=3), Reservoir(1000, seed=3, expected=150_000)
    one.add(X, y)
    for at in range(0, len(y), 9973):
        other.add(X[at : at + 9973], y[at : at + 9973])
    a, b = one.drawn(), other.drawn()
    np.testing.assert_array_equal(a.numbers, b.numbers)
    np.testing.assert_array_equal(a.y, a.numbers)
    assert len(a) == 1000
    assert abs(a.numbers.mean() / len(y) - 0.5) < 0.05
    parts = [draw(X[at : at + 50_000], y[at : at + 50_000], at, 3).fewest(1000) for at in range(0, len(y), 50_000)]
    np.testing.assert_array_equal(Drawn.joined(parts).fewest(1000).numbers, a.numbers)


def test_a_skewed_target_and_columns_that_do_not_matter(tmp_path, few_steps, monkeypatch):
    """Learned on another scale, from some of the columns, in shards as in memory."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(700, 90))
    y = np.exp(2 * np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=700))
    settings = QUICK | {"whitening": "diagonal"}
    model = GPnnRegressor(**settings, target_scale="log").fit_stream(in_batches(X, y), tmp_path / "m.gpnn", n_shards=3)
    in_memory = GPnnRegressor(**settings, target_scale="log").fit(X, y)
    assert in_memory.columns_ is not None
    same(in_memory.predict_distribution(X[:50] + 0.01), model.predict_distribution(X[:50] + 0.01))
    monkeypatch.setattr(Sizes, "sample", 500)
    part = GPnnRegressor(**settings, target_scale="log").fit_stream(in_batches(X, y), tmp_path / "p.gpnn", n_shards=3)
    assert part.evaluate(X, y)["coverage_90"] > 0.8


def test_limits_that_only_the_sample_has(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, 3))
    y = np.abs(X[:, 0]) + 0.1
    monkeypatch.setattr(Sizes, "sample", 500)
    lots = Reservoir(500, GPnnRegressor(**QUICK)._stream_seed())
    lots.add(X, y)
    absent = np.setdiff1d(np.arange(N), lots.drawn().numbers)[0]
    y[absent] = -1.0
    model = GPnnRegressor(**QUICK).fit_stream(in_batches(X, y), tmp_path / "m.gpnn", n_shards=2)
    assert model.target_scale_.low == -np.inf
    y[absent] = 1.0
    model = GPnnRegressor(**QUICK).fit_stream(in_batches(X, y), tmp_path / "n.gpnn", n_shards=2)
    assert model.target_scale_.low == 0
    with pytest.raises(InvalidInputError, match="do not hold"):
        GPnnRegressor(**QUICK, target_limits=(0.5, None)).fit_stream(in_batches(X, y), tmp_path / "o.gpnn")


_PROGRAM = """
import resource, sys
sys.path[:] = {path!r}
import numpy as np
from gpnn import GPnnRegressor, Hyperparameters
from gpnn.regressor.streaming import Sizes

Sizes.sample, Sizes.run = 50_000, 20_000
n = int(sys.argv[1])

def batches():
    for at in range(0, n, 10_000):
        X = np.random.default_rng(at).normal(size=(10_000, 8))
        yield X, X[:, 0]

params = Hyperparameters(1.0, 1.0, 0.1)
settings = {{"n_neighbors": 16, "calibration_size": 100, "far": False, "suspects": "keep", "n_jobs": 1}}
GPnnRegressor(params=params, **settings).fit_stream(batches, sys.argv[2], n_shards=n // 50_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_memory_does_not_grow_with_the_rows(tmp_path):
    megabytes = []
    for n in (100_000, 800_000):
        command = [sys.executable, "-c", _PROGRAM.format(path=sys.path), str(n), str(tmp_path / f"{n}.gpnn")]
        run = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        megabytes.append(int(run.stdout))
    assert megabytes[1] - megabytes[0] < 0.6 * 700_000 * 8 * 8 / 2**20  # what the added rows are as numbers
