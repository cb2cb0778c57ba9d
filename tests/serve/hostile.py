"""Bodies that nobody should send: whole ones mutated, and monsters made for the purpose."""

import io
import json

import numpy as np
import pyarrow as pa

JSON, CSV, ARROW = "application/json", "text/csv", "application/vnd.apache.arrow.stream"

_VALUES = [
    None, True, 0, -1, 1.5, 1e308, -1e308, 1e-320, 10**30, 10**400, "", "1.5", "Bern", "x" * 5000, "\u0000", "\ud800",
    "2022-02-02", "0000-00-00", "99999999-01-01", [], [1], {}, {"a": [1]}, "NaN", "inf", "-", "'; DROP TABLE", "../..",
    "__import__('os')", 2**63, -(2**63) - 1, 0.1 + 0.2,
]  # fmt: skip
_TOKENS = [
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"\xff\xfe", b"\xf0\x28\x8c\x28", b"[" * 3000, b'{"a":' * 3000,
    b"\x00", b"]", b"}", b'"', b",", b'"rows"', b'"columns"', b"null", b"\r\n", b"1" * 5000, b"\xef\xbb\xbf",
    b'"coverage": 1',
]  # fmt: skip


def bodies(rows: list[dict], n: int, seed: int = 0):
    """n pairs of a kind and a body, the same for the same seed."""
    rng = np.random.default_rng(seed)
    makers = (_json, _json, _json, _csv, _csv, _arrow, _arrow)
    for _ in range(n):
        maker = makers[rng.integers(len(makers))]
        kind, body = maker([dict(rows[rng.integers(len(rows))]) for _ in range(rng.integers(1, 6))], rng)
        if rng.random() < 0.05:
            kind = (JSON, CSV, ARROW, "text/plain", "")[rng.integers(5)]
        yield kind, body


def _pick(rng, things):
    return things[rng.integers(len(things))]


def _broken(body: bytes, rng, tokens=_TOKENS) -> bytes:
    """Cut, a few bytes changed, or something put in; sometimes left as it is."""
    for _ in range(rng.integers(0, 3)):
        place = int(rng.integers(len(body) + 1))
        match rng.integers(4):
            case 0:
                body = body[:place]
            case 1:
                body = body[:place] + _pick(rng, tokens) + body[place:]
            case 2:
                body = body[:place] + bytes(rng.integers(0, 256, rng.integers(1, 5)).tolist()) + body[place + 3 :]
            case 3:
                end = int(rng.integers(place, len(body) + 1))
                body = body[:place] + body[end:]
    return body


def _json(rows: list[dict], rng) -> tuple[str, bytes]:
    for _ in range(rng.integers(0, 3)):
        row = _pick(rng, rows)
        name = _pick(rng, list(row) or ["area"])
        if rng.random() < 0.2:
            row.pop(name, None)
        else:
            row[name] = _pick(rng, _VALUES)
    content: dict = {"rows": rows}
    if rng.random() < 0.4:
        content = {"columns": {name: [row.get(name) for row in rows] for name in rows[0]}}
    if rng.random() < 0.3:
        content[_pick(rng, ["coverage", "neighbors", "quantiles", "keep", "y", "rows", "what"])] = _pick(rng, _VALUES)
    return JSON, _broken(json.dumps(content).encode(), rng)


def _csv(rows: list[dict], rng) -> tuple[str, bytes]:
    lines = [",".join(rows[0])]
    for row in rows:
        cells = [str(value) for value in row.values()]
        if rng.random() < 0.3:
            cells[rng.integers(len(cells))] = str(_pick(rng, _VALUES)).encode("utf-8", "replace").decode()
        lines.append(",".join(cells))
    return CSV, _broken("\n".join(lines).encode(), rng, [*_TOKENS, b'"', b'""', b";", b"\n\n", b","])


def _arrow(rows: list[dict], rng) -> tuple[str, bytes]:
    columns = {name: pa.array([row[name] for row in rows]) for name in rows[0]}
    if rng.random() < 0.4:
        n = len(rows)
        strange = [
            pa.nulls(n), pa.array([[1.0]] * n), pa.array([{"a": 1}] * n), pa.array([b"\xff"] * n),
            pa.array([2**62] * n), pa.array([float("nan")] * n), pa.array(["é" * 99] * n), pa.array([1e308] * n),
            pa.array(["a"] * n).dictionary_encode(), pa.array([1] * n, pa.duration("s")),
            pa.array([2**62] * n, pa.timestamp("s")), pa.array([1] * n, pa.uint8()), pa.array([0] * n, pa.time32("s")),
        ]  # fmt: skip
        columns[_pick(rng, list(columns))] = _pick(rng, strange)
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return ARROW, _broken(sink.getvalue(), rng)
