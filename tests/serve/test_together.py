"""Small requests go together, and each gets what it would have got alone; too many are told to wait."""

import re
import threading

from asking import Client, rows_of

from gpnn.serve.app import Settings


def count(client, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)$", client.get("/metrics").body.decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_in_company_as_alone(client, new_flats):
    """Of 200 requests at once, each of one to three rows, every digit is that of the same request alone."""
    rows = rows_of(new_flats)
    questions = [{"rows": rows[3 * k : 3 * k + 1 + k % 3], "coverage": 0.5 + k / 500} for k in range(200)]
    names = ["flats", "gaps", "filled"]
    alone = [client.post(f"/models/{names[k % 3]}/predict", question).body for k, question in enumerate(questions)]
    calls, asked = count(client, "gpnn_batch_requests_count"), count(client, "gpnn_batch_requests_sum")
    at_once = [client.begin_post(f"/models/{names[k % 3]}/predict", question) for k, question in enumerate(questions)]
    assert [answer.result(60).body for answer in at_once] == alone
    assert count(client, "gpnn_batch_requests_sum") - asked == 200
    assert count(client, "gpnn_batch_requests_count") - calls < 100


def test_one_that_fails_does_not_fail_the_others(client, new_flats, monkeypatch):
    model = client.service.registry.models["filled"]
    law = model.law

    def fails_for_some(X):
        if (X[:, 0] == 77.0).any():
            raise ArithmeticError("no")
        return law(X)

    monkeypatch.setattr(model, "law", fails_for_some)
    rows = rows_of(new_flats[:20])
    rows[7]["area"] = 77.0
    answers = [client.begin_post("/models/filled/predict", {"rows": [row]}) for row in rows]
    assert [answer.result(60).status for answer in answers] == [200] * 7 + [500] + [200] * 12


def test_more_than_can_wait_is_turned_away(models, new_flats, monkeypatch):
    narrow = Client(Settings((models / "flats.gpnn",), max_waiting=5, n_jobs=1))
    try:
        model = narrow.service.registry.models["flats"]
        law, release = model.law, threading.Event()
        monkeypatch.setattr(model, "law", lambda X: (release.wait(30), law(X))[1])
        question = {"rows": rows_of(new_flats[:1])}
        answers = [narrow.begin_post("/predict", question) for _ in range(40)]
        turned_away = []
        while len(turned_away) < 10:
            turned_away = [answer.result() for answer in answers if answer.done()]
        assert {answer.status for answer in turned_away} == {429}
        assert {answer.headers["retry-after"] for answer in turned_away} == {"1"}
        assert narrow.get("/health").status == 200
        release.set()
        statuses = [answer.result(60).status for answer in answers]
        assert set(statuses) == {200, 429}
        assert count(narrow, "gpnn_rejected_total") == statuses.count(429)
    finally:
        narrow.close()


def test_a_large_request_does_not_hold_up_small_ones(client, new_flats, monkeypatch):
    model = client.service.registry.models["flats"]
    law, begun, release = model.law, threading.Event(), threading.Event()

    def slow(X):
        if len(X) > 512:
            begun.set()
            release.wait(30)
        return law(X)

    monkeypatch.setattr(model, "law", slow)
    large = client.begin("POST", "/predict", new_flats.to_csv(index=False).encode(), {"content-type": "text/csv"})
    assert begun.wait(30)
    assert client.post("/predict", {"rows": rows_of(new_flats[:1])}).status == 200
    assert not large.done()
    release.set()
    assert large.result(60).body.count(b"\n") == 1201


def test_what_prometheus_reads(client, new_flats):
    rows = rows_of(new_flats[:50])
    rows[0]["city"] = "Rome"
    rows[1]["area"] = 1e4
    before = {
        series: count(client, series)
        for series in (
            'gpnn_rows_total{model="filled"}',
            'gpnn_unknown_levels_total{model="filled",column="city"}',
            'gpnn_outside_range_total{model="filled",column="area"}',
            'gpnn_requests_total{path="/models/{name}/predict",status="200"}',
        )
    }
    assert client.post("/models/filled/predict", {"rows": rows}).status == 200
    after = {series: count(client, series) for series in before}
    assert [after[series] - before[series] for series in before] == [50, 1, 1, 1]
    shift = count(client, 'gpnn_input_shift{model="filled",column="area"}')
    assert 0.1 < shift < 100  # one of 10⁴ among them
    text = client.get("/metrics").body.decode()
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) \w+ .*|\w+(\{(\w+="[^"]*",?)+\})? [-+.\deE]+', line), line
    client.get("/some/made/up/path")
    assert "made" not in client.get("/metrics").body.decode()
