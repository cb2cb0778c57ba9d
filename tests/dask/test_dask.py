"""Real worker processes: the same bits as one machine gives, whatever partitions there are and whoever dies."""

import os

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("distributed")

import dask
import dask.array as da
import dask.dataframe as dd
from dask.delayed import delayed
from distributed import Client, LocalCluster
from sklearn.exceptions import NotFittedError

from gpnn import GPnnRegressor, Hyperparameters
from gpnn.dask import DaskGPnnRegressor, tasks
from gpnn.errors import InvalidInputError
from gpnn.regressor.streaming import Sizes

pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")  # dask's, of pandas

N, D = 3000, 3
GIVEN = {"params": Hyperparameters(1.0, 1.0, 0.05), "n_neighbors": 25, "far": False, "random_state": 0}


@pytest.fixture(scope="module")
def client():
    with (
        dask.config.set({"distributed.worker.daemon": True, "distributed.comm.timeouts.connect": "60s"}),
        LocalCluster(n_workers=2, threads_per_worker=1, memory_limit="2GiB", dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=N), rng.normal(size=(200, D))


@pytest.fixture(scope="module")
def local(data):
    return GPnnRegressor(**GIVEN, n_jobs=1).fit(data[0], data[1])


@pytest.fixture(scope="module")
def fitted(client, data):
    X, y, _ = data
    arrays = da.from_array(X, chunks=(700, 2)), da.from_array(y, chunks=900)
    return DaskGPnnRegressor(client, n_shards=3, **GIVEN).fit(*arrays)


@pytest.fixture(scope="module")
def queries(data):
    return da.from_array(data[2], chunks=((50, 0, 1, 149), D))


def test_every_answer_is_that_of_one_machine(fitted, local, queries, data):
    law, expected = fitted.predict_distribution(queries), local.predict_distribution(data[2])
    assert isinstance(law.mean, da.Array)
    assert law.mean.chunks == queries.chunks[:1]
    np.testing.assert_array_equal(law.mean, expected.mean)
    np.testing.assert_array_equal(law.variance, expected.variance)
    mean, sd = fitted.predict(queries, return_std=True)
    np.testing.assert_array_equal(mean, expected.mean)
    np.testing.assert_allclose(sd, expected.std, rtol=1e-15)
    for end, other in zip(fitted.predict_interval(queries, 0.8), local.predict_interval(data[2], 0.8), strict=True):
        np.testing.assert_array_equal(end, other)
    np.testing.assert_array_equal(
        fitted.predict_quantiles(queries, [0.1, 0.9]), local.predict_quantiles(data[2], [0.1, 0.9])
    )
    numbers, distances = fitted.kneighbors(queries)
    np.testing.assert_array_equal(numbers, local.kneighbors(data[2]).indices)
    np.testing.assert_array_equal(distances, local.kneighbors(data[2]).distances)
    X, y, _ = data
    scores = fitted.evaluate(da.from_array(X, chunks=(1000, D)), da.from_array(y, chunks=1000), units="y")
    assert scores == pytest.approx(local.evaluate(X, y, units="y"), rel=1e-12)


def test_rows_as_far_as_each_other_and_rows_in_two_shards(client):
    rng = np.random.default_rng(4)
    X = rng.integers(-4, 5, size=(2000, D)).astype(float)
    y, queries = X[:, 0] + rng.normal(size=len(X)), np.concatenate([X[:100], X[100:200] + 0.5])
    arrays, local = (da.from_array(X, chunks=(700, D)), da.from_array(y, chunks=700)), GPnnRegressor(**GIVEN).fit(X, y)
    model = DaskGPnnRegressor(client, n_shards=4, halo=0.9, **GIVEN).fit(*arrays)
    assert model.fit_report_["rows_in_halos"] > 0
    law, expected = (
        model.predict_distribution(da.from_array(queries, chunks=(90, D))),
        local.predict_distribution(queries),
    )
    np.testing.assert_array_equal(law.mean, expected.mean)
    np.testing.assert_array_equal(law.variance, expected.variance)
    assert model.get_params()["halo"] == 0.9


def test_the_report_says_what_moved(fitted):
    report = fitted.fit_report_
    assert (report["n"], report["partitions"], report["shards"], report["workers"]) == (N, 5, 3, 2)
    assert report["bytes_spilled"] == N * (4 * D + 16)
    assert list(report["seconds_on_cluster"]) == ["check", "learn", "share-out", "index", "calibrate"]
    assert set(report["asked"]) == {"queries", "questions", "by_one_shard"}


def test_frames_paths_and_named_targets(client, data, local, tmp_path):
    X, y, X_star = data
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abc")).assign(y=y), npartitions=4)
    frame.to_parquet(tmp_path / "parts")
    new = dd.from_pandas(pd.DataFrame(X_star, columns=list("abc"), index=np.arange(200) + 7), npartitions=3)
    model = DaskGPnnRegressor(client, **GIVEN).fit(str(tmp_path / "parts"), "y")
    found = model.predict(new)
    assert isinstance(found, dd.Series)
    assert found.npartitions == 3
    np.testing.assert_array_equal(found.compute(), local.predict(X_star))
    np.testing.assert_array_equal(found.compute().index, np.arange(200) + 7)
    np.testing.assert_array_equal(model.predict_interval(new)[1].compute(), local.predict_interval(X_star)[1])
    quantiles = model.predict_quantiles(new, [0.1, 0.9]).compute()
    assert list(quantiles) == [0.1, 0.9]
    np.testing.assert_array_equal(quantiles, local.predict_quantiles(X_star, [0.1, 0.9]))
    with pytest.raises(InvalidInputError, match="no column 'z'"):
        model.fit(frame, "z")


def test_sampled_it_does_not_matter_how_rows_are_cut(client, data, queries, monkeypatch, tmp_path):
    X, y, X_star = data
    monkeypatch.setattr(Sizes, "sample", property(lambda self: 1600))
    settings = {**GIVEN, "n_neighbors": "auto"}
    means = []
    for chunks, n_shards in ((3000, 2), (431, 5)):
        arrays = da.from_array(X, chunks=(chunks, D)), da.from_array(y, chunks=chunks)
        model = DaskGPnnRegressor(client, n_shards=n_shards, **settings).fit(*arrays)
        means.append(model.predict_distribution(queries))
        assert model.fit_report_["n_sample"] == 1200
    batches = lambda: [(X, y)]  # noqa: E731
    alone = GPnnRegressor(**settings, n_jobs=1).fit_stream(batches, tmp_path / "model.gpnn", n_shards=3)
    for law in means:
        np.testing.assert_array_equal(law.mean, alone.predict_distribution(X_star).mean)
        np.testing.assert_array_equal(law.variance, alone.predict_distribution(X_star).variance)


def deadly(blocks, moments, folder):
    """A column of dask blocks, of which each but the first kills its worker when it is read for the n-th time."""

    def read(k):
        marks = [f for f in os.listdir(folder) if f.startswith(f"{k}-")]
        open(os.path.join(folder, f"{k}-{len(marks)}"), "w").close()
        if moments.get(k) == len(marks):
            os._exit(1)
        return blocks[k]

    parts = [da.from_delayed(delayed(read, pure=False)(k), block.shape, float) for k, block in enumerate(blocks)]
    return da.concatenate(parts)


def test_killed_workers_change_nothing(client, data, local, tmp_path):
    """Killed at the first pass over the rows, at the last one, and at a prediction."""
    X, y, X_star = data
    folders = [tmp_path / name for name in ("fit", "predict")]
    for folder in folders:
        folder.mkdir()
    blocks = np.split(X, 3)
    rows = deadly(blocks, {1: 0, 2: 2}, str(folders[0]))
    model = DaskGPnnRegressor(client, n_shards=2, **GIVEN).fit(rows, da.from_array(y, chunks=1000))
    assert len(os.listdir(folders[0])) > 9  # three passes over three blocks, and those that were lost
    new = deadly(np.split(X_star, 2), {1: 0}, str(folders[1]))
    np.testing.assert_array_equal(model.predict(new), local.predict(X_star))
    assert len(os.listdir(folders[1])) >= 3
    client.wait_for_workers(2)


def test_partitions_of_any_kind(client, data, local):
    X, y, X_star = data
    chunks = (0, 1, 999, 0, 2000)
    odd = da.from_array(X, chunks=(chunks, D)), da.from_array(y, chunks=(chunks,))
    unknown = odd[0][odd[1] > -1e9], odd[1][odd[1] > -1e9]
    assert np.isnan(unknown[0].shape[0])
    for arrays in (odd, unknown):
        model = DaskGPnnRegressor(client, n_shards=2, **GIVEN).fit(*arrays)
        np.testing.assert_array_equal(model.predict(da.from_array(X_star, chunks=(200, D))), local.predict(X_star))


def test_what_is_wrong_is_said_with_the_partition(client, fitted, data):
    X, y, _ = data
    bad = X.copy()
    bad[2500, 1] = np.nan
    model = DaskGPnnRegressor(client, **GIVEN)
    target = da.from_array(y, chunks=1000)
    with pytest.raises(InvalidInputError, match="Partition 2: X has NaN or infinity in 1 of its 1,000 rows"):
        model.fit(da.from_array(bad, chunks=(1000, D)), target)
    with pytest.raises(InvalidInputError, match="Partition 2: X"):
        fitted.predict(da.from_array(bad, chunks=(1000, D))).compute()
    with pytest.raises(InvalidInputError, match="X has 3,000 rows, and y 2,999"):
        model.fit(da.from_array(X, chunks=(1000, D)), target[:-1])
    rows = dd.from_pandas(pd.DataFrame(X), npartitions=3)
    with pytest.raises(InvalidInputError, match="3 partitions, and y 2"):
        model.fit(rows, dd.from_pandas(pd.Series(y), npartitions=2))
    other = dd.from_delayed([delayed(pd.Series)(part) for part in np.split(y, [1000, 1999])])
    with pytest.raises(InvalidInputError, match="Partition 1: X has 1,000 rows, and y 999"):
        model.fit(rows, other)
    with pytest.raises(InvalidInputError, match="not a dask array"):
        model.fit(X, y)
    with pytest.raises(InvalidInputError, match="0 rows to learn from"):
        model.fit(da.zeros((0, D)), da.zeros(0))
    with pytest.raises(NotFittedError):
        model.predict(rows)
    with pytest.raises(TypeError):
        DaskGPnnRegressor(client, neighbours=3)


def test_too_little_memory_is_said_before_anybody_dies(client, data, monkeypatch):
    X, y, _ = data
    arrays = da.from_array(X, chunks=(1000, D)), da.from_array(y, chunks=1000)
    monkeypatch.setattr(Sizes, "most_at_once", 500)
    with pytest.raises(InvalidInputError, match="Partition 0 has 1,000 rows, and a worker's memory is enough for 500"):
        DaskGPnnRegressor(client, **GIVEN).fit(*arrays)
    with pytest.raises(InvalidInputError, match=r"Shard 3 needs 1,048,576 MiB, and worker tcp.* left of its 2,048"):
        client.submit(tasks.check_room, 2**40, "Shard 3").result()
    client.submit(tasks.check_room, 2**20, "Shard 4").result()
    workers = {"tcp://a:1": {"memory_limit": 2**28, "nthreads": 1}}
    monkeypatch.setattr("gpnn.dask.estimator._workers", lambda client: workers)
    with pytest.raises(InvalidInputError, match="tcp://a:1 has 256 MiB"):
        DaskGPnnRegressor(client, **GIVEN).fit(*arrays)


def test_saved_loaded_and_on_one_machine(client, fitted, local, queries, data, tmp_path):
    fitted.save(tmp_path / "model.gpnn")
    loaded = DaskGPnnRegressor.load(tmp_path / "model.gpnn", client)
    for model in (loaded, fitted):
        np.testing.assert_array_equal(model.to_local().predict(data[2]), local.predict(data[2]))
    np.testing.assert_array_equal(loaded.predict(queries), local.predict(data[2]))
    np.testing.assert_array_equal(GPnnRegressor.load(tmp_path / "model.gpnn").predict(data[2]), local.predict(data[2]))
    assert loaded.get_params()["n_neighbors"] == 25
    assert loaded.set_params(n_neighbors=30).get_params()["n_neighbors"] == 30


def test_a_folder_of_one_s_own(client, data, local, tmp_path):
    X, y, X_star = data
    arrays = da.from_array(X, chunks=(1500, D)), da.from_array(y, chunks=1500)
    model = DaskGPnnRegressor(client, folder=tmp_path / "model.gpnn", n_shards=2, **GIVEN).fit(*arrays)
    assert sorted(os.listdir(tmp_path / "model.gpnn")) == ["model.gpnn", "shard-00000.gpnn", "shard-00001.gpnn"]
    np.testing.assert_array_equal(model.predict(da.from_array(X_star, chunks=(200, D))), local.predict(X_star))
    model.fit(*arrays)  # in its place
    with pytest.raises(InvalidInputError, match="Partition 0: y"):
        model.fit(arrays[0], arrays[1] * np.nan)
    assert os.listdir(tmp_path) == ["model.gpnn"]  # what was there stays, and nothing else is left
    assert len(os.listdir(tmp_path / "model.gpnn")) == 3
    (tmp_path / "mine").mkdir()
    with pytest.raises(InvalidInputError, match="something else, and stays"):
        model.set_params(folder=tmp_path / "mine").fit(*arrays)
