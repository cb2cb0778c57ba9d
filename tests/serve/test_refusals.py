"""What is wrong with a request is said with the right status, as cause, check and cure; nobody else notices."""

import asyncio
import io
import json

import numpy as np
import pyarrow as pa
import pytest
from asking import Client, rows_of

from gpnn.serve.app import Settings

CSV, ARROW = "text/csv", "application/vnd.apache.arrow.stream"
WHOLE = {"area": 50.0, "floor": 1, "lift": True, "city": "Bern", "sold": "2022-02-02"}


def stream(batches, **options) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema, **options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def batch(n=3, **columns):
    given = {name: pa.array([value] * n) for name, value in WHOLE.items()} | columns
    return pa.RecordBatch.from_arrays(list(given.values()), names=list(given))


ZSTD = pa.ipc.IpcWriteOptions(compression="zstd")
REFUSED = {
    "not JSON": (b"{", None, 400, "JSON"),
    "no object": (b"[1]", None, 400, "object"),
    "bad UTF-8": (b'{"rows": [{"city": "\xff"}]}', None, 400, "JSON"),
    "NaN": (b'{"rows": [{"area": NaN}]}', None, 400, "null"),
    "deep": (b'{"rows": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", None, 400, "deep"),
    "neither": ({"row": []}, None, 422, "row"),
    "both": ({"rows": [], "columns": {}}, None, 400, "either"),
    "rows no list": ({"rows": 3}, None, 400, "list"),
    "a row no object": ({"rows": [3]}, None, 400, "list"),
    "columns no lists": ({"columns": {"area": 3}}, None, 400, "lists"),
    "lengths": ({"columns": {k: [v] * (1 + (k == "area")) for k, v in WHOLE.items()}}, None, 422, "area"),
    "misspelt": ({"rows": [{**{k: v for k, v in WHOLE.items() if k != "area"}, "aera": 5}]}, None, 422, "'aera'"),
    "absent in the second": ({"rows": [WHOLE, {"area": 3}]}, None, 422, "Row 2"),
    "text for a number": ({"rows": [WHOLE | {"area": "wide"}]}, None, 422, "wide"),
    "a list for a number": ({"rows": [WHOLE | {"area": [1]}]}, None, 422, "area"),
    "an object for a number": ({"rows": [WHOLE | {"area": {"a": 1}}]}, None, 422, "area"),
    "mixed": ({"rows": [WHOLE, WHOLE | {"area": "7"}]}, None, 422, "area"),
    "no date": ({"rows": [WHOLE | {"sold": "soon"}]}, None, 422, "soon"),
    "infinite": (json.dumps({"rows": [WHOLE]}).replace("50.0", "1e999").encode(), None, 422, "infinite"),
    "lone surrogate": ({"rows": [WHOLE | {"city": "\ud800"}]}, None, 422, "city"),
    "coverage": ({"rows": [WHOLE], "coverage": 2}, None, 422, "coverage"),
    "coverage true": ({"rows": [WHOLE], "coverage": True}, None, 422, "coverage"),
    "quantiles": ({"rows": [WHOLE], "quantiles": 0.5}, None, 422, "quantiles"),
    "neighbors": ({"rows": [WHOLE], "neighbors": 10**9}, None, 422, "neighbors"),
    "option": ({"rows": [WHOLE], "confidence": 0.9}, None, 422, "confidence"),
    "too many rows": ({"rows": [{}] * 5001}, None, 413, "rows"),
    "too many bytes": (b" " * (1 << 20) + b"{}", None, 413, "large"),
    "CSV of nothing": (b"", CSV, 400, "cannot be read"),
    "CSV without a column": (b"area,floor\n1,2\n", CSV, 422, "lift"),
    "CSV with a long row": (b"area,floor,lift,city,sold\n1,2,true,Aix,2022-01-01,9,9\n", CSV, 400, "cannot be read"),
    "CSV in UTF-16": ("area,floor".encode("utf-16"), CSV, 400, "UTF-16"),
    "CSV of too many rows": (b"area,floor,lift,city,sold\n" + b"1,2,true,Aix,2022-01-01\n" * 5001, CSV, 413, "rows"),
    "Arrow of nothing": (b"", ARROW, 400, "cannot be read"),
    "Arrow cut": (stream([batch()])[:-60], ARROW, 400, "cannot be read"),
    "Arrow compressed": (stream([batch()], options=ZSTD), ARROW, 422, "compressed"),
    "Arrow of a list": (stream([batch(area=pa.array([[1.0]] * 3))]), ARROW, 422, "area"),
    "Arrow of endless nothing": (
        stream([pa.RecordBatch.from_arrays([pa.nulls(2**24)] * 5, names=list(WHOLE))]), ARROW, 413, "rows"
    ),
    "Arrow repeating a text": (
        stream([batch(4000, city=pa.DictionaryArray.from_arrays(np.zeros(4000, np.int8), ["x" * 200_000]))]),
        ARROW, 413, "large",
    ),
    "another type": (b"x", "text/plain", 415, "text/plain"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(client, name):
    content, kind, status, word = REFUSED[name]
    answer = client.post("/predict", content, kind or "application/json")
    assert answer.status == status, answer.body
    error = answer.json["error"]
    assert set(error) == {"cause", "check", "cure"}
    assert all(error.values())
    assert word in error["cause"] + error["cure"]
    assert "/tmp" not in str(error)


def test_neighbours_in_a_table_are_refused(client, new_flats):
    assert client.post("/predict?neighbors=3", new_flats[:2].to_csv().encode(), CSV).status == 422


def test_a_body_that_never_ends_is_cut(client):
    async def more():
        return b"x" * (1 << 16)

    answer = client.ask("POST", "/predict", headers={"content-type": CSV}, parts=[more] * 1000)
    assert answer.status == 413


def test_paths_methods_and_models(client):
    assert client.get("/nothing").status == 404
    assert client.get("/predict").status == 405
    unknown = client.post("/models/rome/predict", {"rows": []})
    assert (unknown.status, "flats" in unknown.json["error"]["cure"]) == (404, True)
    assert client.ask("POST", "/predict", b"{}", {"content-type": CSV, "content-encoding": "gzip"}).status == 415


def test_tokens(models, new_flats):
    guarded = Client(
        Settings((models / "flats.gpnn",), tokens=("a-token-of-some-length", "and-another-of-them"), n_jobs=1)
    )
    try:
        question = {"rows": rows_of(new_flats[:1])}
        for header in ({}, {"authorization": "Bearer no"}, {"authorization": "Basic a-token-of-some-length"}):
            refused = guarded.post("/predict", question, **header)
            assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert guarded.get("/model").status == guarded.get("/metrics").status == 401
        assert guarded.post("/predict", question, authorization="Bearer and-another-of-them").status == 200
        for path in ("/", "/page.js", "/health", "/ready", "/docs", "/openapi.json"):
            assert guarded.get(path).status == 200
    finally:
        guarded.close()


def test_a_slow_body_and_a_slow_answer_run_out_of_time(models):
    hasty = Client(Settings((models / "flats.gpnn",), timeout=0.3, n_jobs=1))
    try:

        async def late():
            await asyncio.sleep(30)

        answer = hasty.ask("POST", "/predict", headers={"content-type": CSV}, parts=[b"area", late])
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert hasty.post("/predict", {"rows": [WHOLE]}).status == 200
    finally:
        hasty.close()


def test_a_mistake_of_ours_is_an_answer_too(client, monkeypatch, new_flats):
    monkeypatch.setattr(client.service.registry.models["flats"], "law", lambda X: 1 / 0)
    answer = client.post("/predict", {"rows": rows_of(new_flats[:1])})
    assert (answer.status, "mistake" in answer.json["error"]["cause"]) == (500, True)
