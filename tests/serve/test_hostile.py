"""Whatever is sent, the answer is right or a refusal; the process does not grow, and others are served."""

import io
import json
import math
import os

import hostile
import pyarrow as pa
import pyarrow.csv
from asking import rows_of


def means(kind: str, body: bytes) -> list:
    if kind == hostile.JSON:
        return json.loads(body)["mean"]
    table = pa.csv.read_csv(io.BytesIO(body)) if kind == hostile.CSV else pa.ipc.open_stream(body).read_all()
    return table["mean"].to_pylist()


def own_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_hostile_bodies(client, new_flats):
    rows = rows_of(new_flats[:200])
    question = {"rows": rows[:3]}
    expected = client.post("/predict", question).body
    statuses: dict[int, int] = {}
    grown = []
    for number, (kind, body) in enumerate(hostile.bodies(rows, 2500)):
        answer = client.ask("POST", "/predict", body, {"content-type": kind})
        assert answer.status in (200, 400, 413, 415, 422), (answer.status, kind, body[:300])
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
        if answer.status == 200:
            assert all(math.isfinite(mean) for mean in means(kind, answer.body)), body[:300]
        else:
            assert set(answer.json["error"]) == {"cause", "check", "cure"}
        if number % 500 == 499:
            assert client.post("/predict", question).body == expected
            grown.append(own_bytes())
    assert min(statuses[status] for status in (200, 400, 422)) > 100, statuses
    assert grown[-1] - grown[1] < 30e6, grown


def test_rows_that_are_whole_are_answered_as_if_alone(client, new_flats):
    """Of mutated bodies that are still read, each row's answer is that of the row that was sent."""
    model = client.service.registry.models["flats"]
    rows = rows_of(new_flats[:200])
    checked = 0
    for kind, body in hostile.bodies(rows, 1000, seed=1):
        answer = client.ask("POST", "/predict", body, {"content-type": kind})
        if kind == hostile.JSON and answer.status == 200:
            content = json.loads(body)
            values = content.get("columns") or {name: [row[name] for row in content["rows"]] for name in rows[0]}
            assert answer.json["mean"] == model.law(model.rows_of_values(values).X).mean.tolist()
            checked += 1
    assert checked > 20
