"""What can be asked, as OpenAPI and as a page that needs no network."""

from __future__ import annotations

import json
from typing import Any

from gpnn import __version__
from gpnn.judging.report.markup import Markup, element

_ROWS: dict[str, Any] = {
    "type": "array",
    "description": "objects of values by column, null where one is missing",
    "items": {"type": "object", "additionalProperties": {"type": ["number", "string", "boolean", "null"]}},
    "example": [{"area": 74.5, "city": "Bern"}],
}
_COLUMNS = {
    "type": "object",
    "additionalProperties": {"type": "array"},
    "description": "instead of rows: lists of values by column",
}
_OPTIONS: dict[str, Any] = {
    "coverage": {"type": "number", "default": 0.9, "description": "probability that y lies between lower and upper"},
    "quantiles": {"type": "array", "items": {"type": "number"}, "description": "orders of quantiles to give besides"},
    "neighbors": {"type": "integer", "default": 0, "description": "nearest training rows to give with each row"},
    "noise_variance": {
        "description": "of a model fitted with some: what is known of the noise of y, for all rows or for each",
        "oneOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}}],
    },
}
_NUMBERS = {"type": "array", "items": {"type": ["number", "null"]}}
_ANSWER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "model": {"type": "string"},
        "version": {"type": "string", "description": "of the file: it changes when the file does"},
        "mean": _NUMBERS, "sd": _NUMBERS, "lower": _NUMBERS, "upper": _NUMBERS,
        "outside": {"type": "array", "description": "for each row, the columns beyond what the training rows reach"},
        "quantiles": {"type": "array", "description": "a list for each order asked for"},
        "neighbors": {"type": "array", "description": "for each row: row, distance, y and values of training rows"},
    },
}  # fmt: skip
_ERROR = {
    "type": "object",
    "properties": {
        "error": {"type": "object", "properties": {part: {"type": "string"} for part in ("cause", "check", "cure")}}
    },
}
_FAILURES = {
    "400": "the body cannot be read", "401": "no token, or a wrong one", "404": "no such path or model",
    "406": "no such kind of answer", "413": "too large", "415": "not JSON, CSV or Arrow",
    "422": "the rows do not fit the model", "429": "too much is waiting; try again", "503": "not now; try again",
}  # fmt: skip


def _operation(summary: str, answer: str, content: dict[str, Any], **more: Any) -> dict[str, Any]:
    failures = {
        code: {"description": meaning, "content": {"application/json": {"schema": _ERROR}}}
        for code, meaning in _FAILURES.items()
    }
    return {"summary": summary, "responses": {"200": {"description": answer, "content": content}} | failures} | more


def _json(schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"application/json": {"schema": schema or {"type": "object"}}}


def _document() -> dict[str, Any]:
    tables = {"text/csv": {"schema": {"type": "string"}}, "application/vnd.apache.arrow.stream": {"schema": {}}}
    question = {"type": "object", "properties": {"rows": _ROWS, "columns": _COLUMNS} | _OPTIONS}
    outcome = {
        "type": "object",
        "properties": {
            "rows": _ROWS,
            "columns": _COLUMNS,
            "y": _NUMBERS | {"description": "what happened, a number a row"},
        },
        "required": ["y"],
    }
    predict = _operation(
        "Predict rows",
        "mean, sd, lower and upper for every row, in the kind that was sent unless Accept says otherwise",
        _json(_ANSWER) | tables,
        requestBody={"required": True, "content": _json(question) | tables},
        parameters=[
            {"name": name, "in": "query", "schema": {"type": "string"}, "description": meaning}
            for name, meaning in {
                "coverage": "as in JSON, for CSV and Arrow bodies",
                "quantiles": "as in JSON, with commas between them",
                "noise_variance": "one number for all rows",
                "keep": "columns of CSV and Arrow bodies to put before the answers, with commas; * for all",
            }.items()
        ],
    )
    observe = _operation(
        "Tell what happened", "how many outcomes were logged", _json(), requestBody={"content": _json(outcome)}
    )
    observations = _operation("Whether predictions still hold", "coverage and mean z², over time", _json())
    ready = _operation("Whether models are loaded, of the newest files", "versions and errors", _json())
    about = "Predictions that say how sure they are."
    return {
        "openapi": "3.1.0",
        "info": {"title": "gpnn serve", "version": __version__, "description": about},
        "paths": {
            "/predict": {"post": predict},
            "/observe": {"post": observe},
            "/observations": {"get": observations},
            "/model": {"get": _operation("The model", "columns, levels, ranges, fit report", _json())},
            "/models": {"get": _operation("All models by name", "names; /models/{name}/predict asks one", _json())},
            "/health": {"get": _operation("Whether the process lives", "that it does", _json())},
            "/ready": {"get": ready},
            "/metrics": {"get": _operation("For Prometheus", "counts and times", {"text/plain": {}})},
        },
    }  # fmt: skip


def description() -> str:
    return json.dumps(_document(), ensure_ascii=False)


def page() -> str:
    """The same for people."""
    document = _document()
    cards = [
        _card(method, path, operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    failures = element("dl", *(_fact(code, meaning) for code, meaning in _FAILURES.items()), class_="facts")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="/style.css"><link rel="stylesheet" href="/page.css">'
    )
    body = element(
        "main",
        element(
            "header",
            element("p", f"gpnn {__version__}", class_="kicker"),
            element("h1", "What can be asked"),
            element("p", element("a", "Ask the model", href="/"), " or read ",
                    element("a", "openapi.json", href="/openapi.json"), ".", class_="lead"),
        ),
        *cards,
        element("section", element("h2", "Where it fails"),
                element("p", "Every failure is JSON: error.cause, error.check and error.cure."), failures,
                class_="card"),
    )  # fmt: skip
    html = element(
        "html", element("head", Markup(head), element("title", "gpnn serve")), element("body", body), lang="en"
    )
    return f"<!doctype html>\n{html}\n"


def _fact(name: str, meaning: str) -> Markup:
    return element("div", element("dt", name), element("dd", meaning))


def _card(method: str, path: str, operation: dict[str, Any]) -> Markup:
    parts = [
        element("h2", element("code", f"{method.upper()} {path}")),
        element("p", f"{operation['summary']}: {operation['responses']['200']['description']}."),
    ]
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" in content:
        fields = content["application/json"]["schema"]["properties"]
        facts = [_fact(name, field.get("description", field.get("type", ""))) for name, field in fields.items()]
        example: dict[str, Any] = {"rows": _ROWS["example"]}
        example |= {"y": [310.5]} if "y" in fields else {"coverage": 0.8, "neighbors": 3}
        parts += [element("dl", *facts, class_="facts"), element("pre", json.dumps(example), class_="scroll")]
    if operation.get("parameters"):
        facts = [_fact(f"?{one['name']}=", one["description"]) for one in operation["parameters"]]
        parts.append(element("dl", *facts, class_="facts"))
    return element("section", *parts, class_="card")
