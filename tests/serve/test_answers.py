"""Answers over HTTP are those of the library, digit for digit, whatever way they are asked for."""

import io
import os
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from asking import Client, flats, rows_of

from gpnn import GPnnRegressor, Hyperparameters, TableModel
from gpnn.errors import InvalidInputError
from gpnn.serve.app import Settings

CSV, ARROW = "text/csv", "application/vnd.apache.arrow.stream"
ANSWERS = ("mean", "sd", "lower", "upper")


@pytest.fixture(scope="module")
def table_model(models):
    return TableModel.load(models / "flats.gpnn")


def as_arrow(table, **options) -> bytes:
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, arrow.schema, **options) as writer:
        writer.write_table(arrow, max_chunksize=500)
    return sink.getvalue()


def test_rows_and_columns_of_json(client, table_model, new_flats):
    some = new_flats[:40]
    expected = table_model.predict(some, coverage=0.8)
    rows = rows_of(some)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    for question in ({"rows": rows}, {"columns": columns}):
        answer = client.post("/predict", question | {"coverage": 0.8}).json
        for name in ANSWERS:
            assert answer[name] == expected[name].to_pylist()
        assert (answer["model"], answer["target"], answer["outside"]) == ("flats", "price", [[]] * 40)


def test_the_short_way_gives_what_the_encoder_gives(client, new_flats):
    """Numbers and levels as JSON's own types skip Arrow; a date or a boolean in the model makes all go through it."""
    model = client.service.registry.models["plain"]
    rng = np.random.default_rng(2)
    values = {f"x{k}": [*rng.normal(size=5).tolist(), 3, -7] for k in range(3)}
    batch = pa.RecordBatch.from_arrays([pa.array(map(float, v)) for v in values.values()], names=list(values))
    assert np.array_equal(model.rows_of_values(values).X, model.rows(batch).X)
    flats_model = client.service.registry.models["flats"]
    cities = ["Bern", "Aix", "Cork"]
    quick = flats_model._quick[3](cities)
    assert np.array_equal(quick, flats_model.columns[3].encode(pa.array(cities), {}))


@pytest.mark.parametrize("n", [7, 1200])
def test_csv_and_arrow(client, table_model, new_flats, n):
    some = new_flats[:n]
    expected = table_model.predict(some)
    csv = client.post("/predict?keep=city,area", some.to_csv(index=False).encode(), CSV)
    assert (csv.status, csv.headers["content-type"].split(";")[0]) == (200, CSV)
    found = pa.csv.read_csv(io.BytesIO(csv.body))
    assert found.column_names == ["city", "area", *ANSWERS]
    assert found["city"].to_pylist() == some["city"].tolist()
    arrow = client.post("/predict", as_arrow(some), ARROW)
    table = pa.ipc.open_stream(arrow.body).read_all()
    for name in ANSWERS:
        assert found[name].to_pylist() == table[name].to_pylist() == expected[name].to_pylist()


def test_asked_in_one_kind_and_answered_in_another(client, new_flats):
    body = new_flats[:600].to_csv(index=False).encode()
    as_json = client.post("/predict", body, CSV, accept="application/json").json
    arrow = client.post("/predict", body, CSV, accept=f"text/html, {ARROW};q=0.5, */*")
    assert pa.ipc.open_stream(arrow.body).read_all()["mean"].to_pylist() == as_json["mean"]
    assert client.post("/predict", body, CSV, accept="image/png").status == 406


def test_polars_writes_streams_that_can_be_read(client, table_model, new_flats):
    polars = pytest.importorskip("polars")
    sink = io.BytesIO()
    polars.from_pandas(new_flats[:50]).write_ipc_stream(sink)
    table = pa.ipc.open_stream(client.post("/predict", sink.getvalue(), ARROW).body).read_all()
    assert table["mean"].to_pylist() == table_model.predict(new_flats[:50])["mean"].to_pylist()


def test_quantiles_neighbours_and_what_is_outside(client, models, table_model, new_flats):
    rows = rows_of(new_flats[:3])
    rows[1] |= {"area": 900.0, "city": "Rome"}
    answer = client.post("/predict", {"rows": rows, "quantiles": [0.05, 0.5, 0.95], "neighbors": 4}).json
    assert answer["quantiles"][0] == answer["lower"]
    assert answer["quantiles"][2] == answer["upper"]
    assert answer["outside"] == [[], ["area", "city"], []]
    assert answer["unknown_levels"] == {"city": 1}
    X, _ = table_model.read_rows(new_flats[:3])
    found = table_model.regressor.kneighbors(X)
    training = flats(600)
    for row, numbers, distances in zip(answer["neighbors"][::2], found.indices[::2], found.distances[::2], strict=True):
        assert [near["row"] for near in row] == numbers[:4].tolist()
        assert [near["distance"] for near in row] == distances[:4].tolist()
        for near in row:
            original = training.iloc[near["row"]]
            assert near["y"] == pytest.approx(original["price"], rel=1e-4)
            values = near["values"]
            assert values["area"] == pytest.approx(original["area"], rel=1e-4)
            assert (values["city"], values["lift"]) == (original["city"], original["lift"])
            assert values["sold"] == str(original["sold"])[:10]


def test_missing_values_go_as_the_model_was_told(client, new_flats):
    rows = rows_of(new_flats[:3])
    rows[1]["area"] = None
    refused = client.post("/predict", {"rows": rows})
    assert (refused.status, "area (1)" in refused.json["error"]["cause"]) == (422, True)
    left_out = client.post("/models/gaps/predict", {"rows": rows, "neighbors": 2}).json
    assert [value is None for value in left_out["mean"]] == [False, True, False]
    assert (left_out["neighbors"][1], left_out["outside"][1], left_out["missing"]) == (None, None, {"area": 1})
    filled = client.post("/models/filled/predict", {"rows": rows}).json
    assert None not in filled["mean"]
    gap = new_flats[:900].astype({"area": object})
    gap.loc[5, "area"] = None
    table = pa.ipc.open_stream(client.post("/models/gaps/predict", as_arrow(gap), ARROW).body).read_all()
    assert (table["mean"].null_count, table["mean"][5].as_py(), table.num_rows) == (1, None, 900)


def test_a_file_without_a_schema(client, models):
    X = np.random.default_rng(1).normal(size=(20, 3))
    rows = [dict(zip(("x0", "x1", "x2"), row, strict=True)) for row in X.tolist()]
    mean, sd = GPnnRegressor.load(models / "plain.gpnn").predict(X, return_std=True)
    answer = client.post("/models/plain/predict", {"rows": rows}).json
    assert answer["mean"] == mean.tolist()
    assert answer["sd"] == sd.tolist()


def test_no_rows_are_no_answers(client):
    assert client.post("/predict", {"rows": []}).json["mean"] == []
    assert client.post("/predict", b"area,floor,lift,city,sold\n", CSV).body == b"mean,sd,lower,upper\n"


def test_what_get_model_says(client):
    facts = client.get("/model").json
    columns = {column["name"]: column for column in facts["columns"]}
    assert (facts["target"], facts["rows"], facts["missing"]) == ("price", 600, "error")
    assert columns["area"]["kind"] == "number"
    assert columns["area"]["range"] == pytest.approx([flats(600)["area"].min(), flats(600)["area"].max()], rel=1e-4)
    assert columns["city"] == {
        "name": "city", "kind": "category", "levels": ["Aix", "Bern", "Cork"], "n_levels": 3, "typical": "Aix",
    }  # fmt: skip
    assert columns["lift"]["kind"] == "boolean"
    assert columns["sold"]["range"][0] == str(flats(600)["sold"].min())[:10]
    names = [model["name"] for model in client.get("/models").json["models"]]
    assert names == ["flats", "gaps", "filled", "plain"]
    assert client.get("/models/plain").json["columns"][0]["name"] == "x0"


@pytest.mark.parametrize("whitening", ["diagonal", "full", "ranks"])
def test_training_rows_are_recovered_from_whitened_ones(whitening):
    from gpnn import Hyperparameters
    from gpnn.serve.training import Training

    rng = np.random.default_rng(0)
    X = rng.lognormal(size=(700, 4)) * [1, 100, 0.01, 1]
    X[:, 3] = X[:, 0] + 0.1 * X[:, 3]
    y = X[:, 0] - 3.0
    settings = {"params": Hyperparameters(1.0, 0.9, 0.1), "n_neighbors": 10, "random_state": 0, "n_jobs": 1}
    regressor = GPnnRegressor(whitening=whitening, mean="linear", return_rows=False, **settings).fit(X, y)
    kept = np.delete(np.arange(700), regressor._set_aside)
    inputs, targets = Training(regressor).rows(kept[:100])
    exact = 0.02 if whitening == "ranks" else 1e-4  # places between quantiles are known to a quantile
    assert np.allclose(inputs, X[kept[:100]], rtol=exact, atol=exact * X.std(axis=0))
    assert np.allclose(targets, y[kept[:100]], rtol=1e-4, atol=exact * 3)


@pytest.mark.parametrize("name", ["reference", "gpu"])
def test_another_engine_gives_the_same_laws(models, new_flats, name):
    if name == "gpu":
        pytest.importorskip("torch")
        pytest.importorskip("triton")
        from gpnn.engines.gpu import GPU

        name = GPU(device="cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda", n_jobs=1)
    elsewhere = Client(Settings((models / "flats.gpnn",), engine=name))
    try:
        answer = elsewhere.post("/predict", {"rows": rows_of(new_flats[:5]), "neighbors": 2}).json
    finally:
        elsewhere.close()
    expected = TableModel.load(models / "flats.gpnn").predict(new_flats[:5])
    for column in ANSWERS:
        np.testing.assert_allclose(answer[column], expected[column].to_pylist(), rtol=1e-3)
    assert [len(rows) for rows in answer["neighbors"]] == [2] * 5


def test_noise_that_is_known_of_new_rows(tmp_path):
    rng = np.random.default_rng(0)
    X, v = rng.normal(size=(300, 2)), rng.choice([0.01, 1.0], 300)
    params = Hyperparameters(1.0, 0.9, 0.1)
    model = GPnnRegressor(params=params, n_neighbors=10, random_state=0, n_jobs=1).fit(X, X[:, 0], noise_variance=v)
    model.save(tmp_path / "noisy.gpnn")
    rows = [dict(zip(("x0", "x1"), row.tolist(), strict=True)) for row in X[:4]]
    with closing(Client(Settings((tmp_path / "noisy.gpnn",), n_jobs=1))) as client:
        for given in (0.0, 2.5, [0.0, 1.0, 2.0, 3.0]):
            answer = client.post("/predict", {"rows": rows, "noise_variance": given}).json
            mean, sd = model.predict(X[:4], return_std=True, noise_variance=given)
            np.testing.assert_allclose(answer["mean"], mean)
            np.testing.assert_allclose(answer["sd"], sd)
        usual = client.post("/predict", {"rows": rows}).json
        np.testing.assert_allclose(usual["sd"], model.predict(X[:4], return_std=True)[1])
        refused = client.post("/predict", {"rows": rows, "noise_variance": [1.0]})
        assert (refused.status, "1 values for 4 rows" in str(refused.json)) == (422, True)
        assert client.post("/predict", {"rows": rows, "noise_variance": -1.0}).status == 422


def test_a_model_of_several_targets_is_served_one_by_one(tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 2))
    model = GPnnRegressor(params=Hyperparameters(1.0, 0.9, 0.1), n_neighbors=10, random_state=0, n_jobs=1).fit(X, X)
    model.save(tmp_path / "two.gpnn")
    with pytest.raises(InvalidInputError, match="2 targets, and a server answers for one"):
        Client(Settings((tmp_path / "two.gpnn",), n_jobs=1))
