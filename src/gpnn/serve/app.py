"""The routes. Starlette on uvicorn: an asynchronous server is what lets questions of many clients share a call and idle
clients cost nothing, and Starlette adds routes and streams to it without a second opinion on what a body should be."""

from __future__ import annotations

import asyncio
import gc
import hmac
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from time import perf_counter

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpnn import __version__
from gpnn.common.types import Array, Prediction
from gpnn.engines import Engine
from gpnn.serve import bodies
from gpnn.serve.batching import LARGE, Batcher
from gpnn.serve.bodies import ARROW, CSV, JSON, Question
from gpnn.serve.metrics import SECONDS, SIZES, Key, Metrics
from gpnn.serve.models import Registry, ServedModel
from gpnn.serve.observations import Health, Log, spread_of_z2
from gpnn.serve.openapi import description, page
from gpnn.serve.refusals import LOOK, OURS, RefusalError, busy, refusal_of

log = logging.getLogger("gpnn.serve")

OPEN = {"/", "/page.css", "/page.js", "/style.css", "/docs", "/openapi.json", "/health", "/ready"}
"""What is answered without a token: nothing that a model knows."""

_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'"
_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
_QUICK = 1 << 16  # bytes; bodies up to here are read on the spot
_MOST_BODIES = 4  # times the largest body: what all bodies under way may take together
_LOOK_EVERY = 1.0  # seconds, at files that may have been replaced


@dataclass(frozen=True)
class Settings:
    """What `gpnn serve` was told."""

    paths: tuple[Path, ...]
    tokens: tuple[str, ...] = ()
    max_rows: int = 1_000_000
    max_bytes: int = 256 << 20
    max_waiting: int = 1024
    timeout: float = 30.0
    linger: float = 0.001
    n_jobs: int | None = None
    engine: str | Engine = "cpu"
    log: Path | None = None
    notes: Path | None = None
    """Where several processes tell each other what they counted."""


def make_app(settings: Settings, registry: Registry | None = None) -> ASGIApp:
    service = Service(settings, registry)
    app = Starlette(
        routes=service.routes(),
        lifespan=service.lifespan,
        exception_handlers={
            HTTPException: _http_error,
            Exception: _broken,
            **dict.fromkeys((RefusalError, *OURS), _refused),
        },
    )
    return Gate(app, service)


class Service:
    """The models, and what all requests share."""

    def __init__(self, settings: Settings, registry: Registry | None):
        self.settings = settings
        self.registry = registry or Registry.of(list(settings.paths), settings.n_jobs, settings.engine)
        self.metrics = Metrics(settings.notes)
        self.log = None if settings.log is None else Log(settings.log)
        self.stopping = False
        self._bytes = 0  # of bodies under way
        self._reading = ThreadPoolExecutor(2, "reading")
        self._descriptions: dict[tuple[str, str], dict] = {}

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.batcher = Batcher(self.settings.linger, max_waiting=self.settings.max_waiting)
        self.batcher.on_batch = self._count_batch
        self.batcher.start()
        watch = asyncio.get_running_loop().create_task(self._watch())
        gc.collect()
        gc.freeze()  # what there is now stays: looking through it for garbage would hold up requests now and then
        yield
        gc.unfreeze()
        self.stopping = True
        watch.cancel()
        await self.batcher.stop()
        self._reading.shutdown(wait=False)
        self.metrics.note(now=True)
        if self.log is not None:
            self.log.close()

    def _count_batch(self, questions: int, rows: int) -> None:
        self.metrics.histogram("gpnn_batch_requests", questions, SIZES)
        self.metrics.histogram("gpnn_batch_rows", rows, SIZES)

    async def _watch(self) -> None:
        """Look after replaced files, in a thread of their own: requests go on with the model they have."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "loading") as thread:
            while True:
                await asyncio.sleep(_LOOK_EVERY)
                try:
                    for name in await loop.run_in_executor(thread, self.registry.stale):
                        await loop.run_in_executor(thread, self.registry.refresh, name)
                except Exception:  # looked at again in a second
                    log.exception("looking after replaced files")
                self.metrics.note()

    def routes(self) -> list[Route]:
        def static(name: str, kind: str, content: str) -> Route:
            async def give(request: Request) -> Response:
                return Response(content, media_type=kind, headers={"content-security-policy": _POLICY})

            return Route(name, give)

        def text(package: str, name: str) -> str:
            return (files(package) / name).read_text(encoding="utf-8")

        return [
            Route("/predict", self.predict, methods=["POST"]),
            Route("/models/{name}/predict", self.predict, methods=["POST"]),
            Route("/observe", self.observe, methods=["POST"]),
            Route("/models/{name}/observe", self.observe, methods=["POST"]),
            Route("/observations", self.observations),
            Route("/models/{name}/observations", self.observations),
            Route("/models", self.list_models),
            Route("/model", self.model),
            Route("/models/{name}", self.model),
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route("/metrics", self.give_metrics),
            static("/openapi.json", JSON, description()),
            static("/docs", "text/html", page()),
            static("/", "text/html", text("gpnn.serve", "page/index.html")),
            static("/page.js", "text/javascript", text("gpnn.serve", "page/page.js")),
            static("/page.css", "text/css", text("gpnn.serve", "page/page.css")),
            static("/style.css", "text/css", text("gpnn.judging.report", "style.css")),
        ]

    # --- answers ------------------------------------------------------------------------------------------------------

    async def predict(self, request: Request) -> Response:
        model = self._chosen(request)
        kind = _kind(request)
        wanted = bodies.answer_kind(request.headers.get("accept"), kind)
        async with self._limit():
            question = await self._question(request, kind, model)
            rows = question.rows
            beyond = model.beyond(rows.X)
            self.metrics.rows(model, rows, beyond, drift="x-gpnn-trying" not in request.headers)
            headers = {"x-model": f"{model.name}@{model.version}"}
            if question.n_rows > LARGE and wanted != JSON:
                return await self._stream(model, question, wanted, headers)
            law = await self._law(model, question)
            if wanted != JSON:
                writer = bodies.Writer(wanted, model, question)
                content = writer.block(slice(0, question.n_rows), law) + writer.end()
                return Response(content, media_type=wanted, headers=headers)
            neighbors = None
            if question.options.neighbors:
                if len(rows.X) > LARGE:
                    raise RefusalError(422, f"Neighbours are given for at most {LARGE} rows.", "Ask for fewer rows.")
                neighbors = await self.batcher.apart(model.neighbors, rows.X, question.options.neighbors)
            content = bodies.as_json(model, question, law, beyond, neighbors)
        return Response(content, media_type=JSON, headers=headers)

    async def _law(self, model: ServedModel, question: Question) -> Prediction:
        """Of a question whose answer goes out in one piece."""
        rows = question.rows
        if question.n_rows <= LARGE:
            law = await self.batcher.law(model, rows.X)
        else:
            law = Prediction.joined([part async for _, part in self.batcher.laws(model, rows.X, rows.whole)])
        return question.with_noise(law)

    async def _stream(self, model: ServedModel, question: Question, kind: str, headers: dict) -> Response:
        """Block by block. The rows were read and checked whole, so that what is wrong with them was said already."""
        laws = self.batcher.laws(model, question.rows.X, question.rows.whole)
        writer = bodies.Writer(kind, model, question)
        part, law = await anext(laws)  # if this fails, there is still time for another status
        first = writer.block(part, question.with_noise(law))

        async def content() -> AsyncIterator[bytes]:
            yield first
            async for part, law in laws:
                yield writer.block(part, question.with_noise(law))
            yield writer.end()

        return StreamingResponse(content(), media_type=kind, headers=headers)

    async def observe(self, request: Request) -> Response:
        model = self._chosen(request)
        journal = self._journal()
        if _kind(request) != JSON:
            raise _unsupported("Outcomes are sent as JSON.")
        async with self._limit():
            question = await self._question(request, JSON, model)
            rows = question.rows
            y = _outcomes(question)
            law = await self._law(model, question)
            answers = bodies.columns_of(model, law, bodies.Options())
            names, values = list(question.values or {}), list((question.values or {}).values())
            inputs = [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
            kept = [row for row, there in zip(inputs, rows.whole, strict=True) if there]
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(
                journal.thread, journal.append, model.name, model.version, answers, y[rows.whole], kept
            )
        return JSONResponse({"model": model.name, "version": model.version, "logged": len(kept)})

    async def observations(self, request: Request) -> Response:
        """How the latest outcomes agree with what was predicted, and how that went over time."""
        model = self._chosen(request)
        journal = self._journal()
        spread = _z2_spread(model)

        def look() -> dict:
            health = journal.health(model.name, model.version, spread)
            return asdict(health) | {"history": journal.history(model.name, model.version, spread)}

        return JSONResponse(await asyncio.get_running_loop().run_in_executor(journal.thread, look))

    # --- facts --------------------------------------------------------------------------------------------------------

    async def list_models(self, request: Request) -> Response:
        models = self.registry.models.values()
        found = [{"name": m.name, "version": m.version, "target": m.table.target} for m in models]
        return JSONResponse({"models": found, "observes": self.log is not None})

    async def model(self, request: Request) -> Response:
        return JSONResponse(self._described(self._chosen(request)))

    def _described(self, model: ServedModel) -> dict:
        key = (model.name, model.version)
        if key not in self._descriptions:
            self._descriptions = {key: model.describe(), **dict(list(self._descriptions.items())[:16])}
        return self._descriptions[key] | {"observes": self.log is not None}

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "gpnn": __version__})

    async def ready(self, request: Request) -> Response:
        if self.stopping:
            raise RefusalError(503, "The server is stopping.", "Ask another one.", "GET /health.", {"Retry-After": "5"})
        paths, found = self.registry.paths, dict(self.registry.errors)  # which another thread may change
        errors = {name: text.replace(str(paths[name]), paths[name].name) for name, text in found.items()}
        versions = {name: model.version for name, model in self.registry.models.items()}
        return JSONResponse({"status": "stale" if errors else "ready", "models": versions, "errors": errors})

    async def give_metrics(self, request: Request) -> Response:
        gauges: dict[Key, float] = {("gpnn_waiting_requests", ()): float(self.batcher.waiting)}
        for name in self.registry.models:
            label = (("model", name),)
            gauges["gpnn_model_stale", label] = float(name in self.registry.errors)
            gauges["gpnn_model_reloads_total", label] = float(self.registry.reloads[name])
            gauges["gpnn_model_reload_failures_total", label] = float(self.registry.failures[name])
        if self.log is not None:
            loop = asyncio.get_running_loop()
            gauges |= await loop.run_in_executor(self.log.thread, _observed, self.log, dict(self.registry.models))
        text = self.metrics.text(self.registry.models, gauges)
        return Response(text, media_type="text/plain; version=0.0.4")

    # --- what they share ----------------------------------------------------------------------------------------------

    def _chosen(self, request: Request) -> ServedModel:
        name = request.path_params.get("name") or next(iter(self.registry.models))
        model = self.registry.models.get(name)
        if model is None:
            raise RefusalError(
                404, f"There is no model {name[:80]!r} here.", f"Choose one of: {', '.join(self.registry.models)}.",
                "GET /models lists them.",
            )  # fmt: skip
        return model

    def _journal(self) -> Log:
        if self.log is None:
            raise RefusalError(
                404, "This server keeps no log of outcomes.", "Start it with --log observations.sqlite.", "GET /models."
            )
        return self.log

    @asynccontextmanager
    async def _limit(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.settings.timeout):
                yield
        except TimeoutError as error:
            raise RefusalError(
                503,
                f"The request was not read and answered within {self.settings.timeout:g} s.",
                "Send fewer rows at a time, or faster; or start the server with a larger --timeout.",
                "GET /metrics shows how long requests take.",
                {"Retry-After": "1", "Connection": "close"},
            ) from error

    async def _question(self, request: Request, kind: str, model: ServedModel) -> Question:
        limit = self.settings.max_bytes if kind != JSON else min(self.settings.max_bytes, bodies.JSON_BYTES)
        held = 0
        try:
            parts = []
            async for part in _parts(request, limit):
                held, self._bytes = held + len(part), self._bytes + len(part)
                if self._bytes > _MOST_BODIES * self.settings.max_bytes:
                    raise busy("The bodies of all requests under way take too much memory.", 5)
                parts.append(part)
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            del parts
            arguments = (kind, body, model, request.query_params, self.settings.max_rows)
            if len(body) <= _QUICK:
                return bodies.read(*arguments)
            return await asyncio.get_running_loop().run_in_executor(self._reading, bodies.read, *arguments)
        finally:
            self._bytes -= held


async def _parts(request: Request, limit: int) -> AsyncIterator[bytes]:
    """The body as it comes, refused as soon as it is known to be too large."""
    declared = request.headers.get("content-length", "")
    size = int(declared) if declared.isdecimal() and len(declared) < 20 else 0
    async for part in request.stream():
        size = max(size, 0)
        if size > limit:
            break
        limit -= len(part)
        size = max(0, size - len(part))
        if limit < 0:
            break
        if part:
            yield part
    else:
        return
    raise RefusalError(
        413, "The body is larger than the server takes.",
        "Send several requests, or start the server with a larger --max-bytes; JSON may have 8 MiB at most.",
        "CSV and Arrow bodies may be larger than JSON.", {"Connection": "close"},
    )  # fmt: skip


def _kind(request: Request) -> str:
    """What the body says it is."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise _unsupported("Compressed bodies are not taken.")
    if kind not in bodies.KINDS:
        raise _unsupported(f"The content type is {kind[:80]!r}.")
    return kind


def _unsupported(cause: str) -> RefusalError:
    return RefusalError(415, cause, f"Send one of {JSON}, {CSV} or {ARROW}, and say so in Content-Type.", "See /docs.")


def _outcomes(question: Question) -> Array:
    """What happened, one finite number a row."""
    y = question.outcomes
    good = isinstance(y, list) and all(type(value) in (int, float) for value in y) and len(y) == question.n_rows
    try:
        values = np.array(y if good else [], dtype=float)
    except OverflowError:
        good = False
    if not good or not np.isfinite(values).all() or (np.abs(values) > 1e150).any():
        raise RefusalError(
            422, "'y' must be a list of as many finite numbers as there are rows.",
            "Send only rows whose outcome is known, in the same order.",
        )  # fmt: skip
    return values


def _z2_spread(model: ServedModel) -> float:
    regressor = model.regressor
    scale, quantile = regressor.target_scale_, regressor.shape_.quantile
    if scale.plain:
        return spread_of_z2(quantile)
    # On another scale the law of (y − mean)/sd differs between rows: that of a typical one.
    t, sd = scale(regressor._y_scale[0]), regressor.whitener_.y_std * np.sqrt(regressor.params_.noise_variance)
    mean, variance = scale.moments(np.atleast_1d(t), np.atleast_1d(sd))
    return spread_of_z2(lambda q: (scale.back(t + sd * quantile(q)) - mean) / np.sqrt(variance))


def _observed(journal: Log, models: dict[str, ServedModel]) -> dict[Key, float]:
    """For /metrics; a log that cannot be read takes nothing else down."""
    found: dict[Key, float] = {}
    try:
        found["gpnn_observations_total", ()] = float(journal.total())
        for model in models.values():
            health: Health = journal.health(model.name, model.version, _z2_spread(model))
            label = (("model", model.name),)
            found["gpnn_observed_alarm", label] = float(health.alarm)
            if health.n:
                assert health.mean_z2 is not None
                assert health.mean_z2_interval is not None
                found["gpnn_observed_coverage_90", label] = health.coverage or 0.0
                found["gpnn_observed_mean_z2", label] = health.mean_z2
                found["gpnn_observed_mean_z2_low", label] = health.mean_z2_interval[0]
                found["gpnn_observed_mean_z2_high", label] = health.mean_z2_interval[1]
    except Exception as error:
        log.warning("the log of outcomes cannot be read: %s", error)
    return found


# --- at the gate ------------------------------------------------------------------------------------------------------


async def _refused(request: Request, error: Exception) -> Response:
    refusal = error if isinstance(error, RefusalError) else refusal_of(error)
    return Response(refusal.body(), refusal.status, headers=refusal.headers, media_type=JSON)


async def _http_error(request: Request, error: Exception) -> Response:
    """Starlette's own: no such path, or not with this method."""
    assert isinstance(error, HTTPException)
    cause = f"{request.method} {request.url.path[:80]}: {error.detail}."
    refusal = RefusalError(error.status_code, cause, "See /docs for what there is.", LOOK, dict(error.headers or {}))
    return await _refused(request, refusal)


async def _broken(request: Request, error: Exception) -> Response:
    """A mistake of ours; Starlette raises it on, for the log, once this is sent."""
    cause, cure = "The server failed at this request; that is a mistake in gpnn.", "Report it with what was sent."
    return await _refused(request, RefusalError(500, cause, cure, "The server's log says where."))


class Gate:
    """Around all requests: tokens, counts and times, and an answer even where the code is wrong."""

    def __init__(self, app: ASGIApp, service: Service):
        self.app, self.service = app, service
        self._tokens = [token.encode() for token in service.settings.tokens]
        self._seconds = service.settings.timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, ended = perf_counter(), 499, False  # 499: the client went away

        async def send_on(message: Message) -> None:
            nonlocal status, ended
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_HEADERS]
            elif message.get("more_body"):  # a client that does not read its answer must not hold it for ever
                async with asyncio.timeout(self._seconds):
                    await send(message)
                return
            else:
                ended = True
            await send(message)

        try:
            if self._tokens and scope["path"] not in OPEN and not self._known(scope):
                await self._deny(scope, receive, send_on)
            else:
                await self.app(scope, receive, send_on)
        except ClientDisconnect:
            pass
        except Exception:
            log.exception("%s %s", scope["method"], scope["path"])
            if not ended:
                raise  # the connection is cut: half an answer must not look like a whole one
        finally:
            self._count(scope, status, perf_counter() - start)

    def _known(self, scope: Scope) -> bool:
        """Whether the request carries one of the tokens; all are compared, each in constant time."""
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        kind, _, token = given.partition(b" ")
        return kind.lower() == b"bearer" and sum(hmac.compare_digest(token.strip(), own) for own in self._tokens) > 0

    async def _deny(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = RefusalError(
            401, "This server wants a token.", "Send the header: Authorization: Bearer <token>.",
            "Whoever started the server has the file of tokens.", {"WWW-Authenticate": "Bearer"},
        )  # fmt: skip
        await Response(refusal.body(), 401, headers=refusal.headers, media_type=JSON)(scope, receive, send)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        metrics = self.service.metrics
        path = _pattern(scope)
        metrics.add("gpnn_requests_total", path=path, status=str(status))
        metrics.histogram("gpnn_request_seconds", seconds, SECONDS, path=path)
        if status == 429:
            metrics.add("gpnn_rejected_total")


_ENDS = ("predict", "observe", "observations")


def _pattern(scope: Scope) -> str:
    """The path with the model's name left out, so that clients cannot make up labels."""
    path: str = scope["path"]
    if path in OPEN or path in ("/predict", "/observe", "/observations", "/models", "/model", "/metrics"):
        return path
    parts = path.split("/")
    if len(parts) in (3, 4) and parts[1] == "models" and (len(parts) == 3 or parts[3] in _ENDS):
        return "/".join(["", "models", "{name}", *parts[3:]])
    return "other"
