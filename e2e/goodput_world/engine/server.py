"""The routes of vLLM's API server over one simulated engine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import orjson

from goodput.simulator.engine import Engine, StepResult
from goodput.simulator.sequences import AdmissionRejectedError, EngineRequest, RequestError
from goodput.simulator.sequences import Sequence as EngineSequence
from goodput_world.engine.answers import StreamedAnswer, UnaryAnswer, error_body
from goodput_world.engine.clock import SimulatedClock
from goodput_world.engine.driver import EngineDriver
from goodput_world.engine.exposition import Registry
from goodput_world.engine.generation import ClientError, Generation, parse
from goodput_world.engine.http1 import Connection, Request
from goodput_world.engine.httpmetrics import HttpMetrics, process_lines
from goodput_world.engine.metrics import EngineMetrics

VERSION = "0.33.0"
_TEXT = b"text/plain; version=1.0.0; charset=utf-8"
_REJECTION_TEXT = {
    "max_num_queued_reqs": "The server is busy: too many requests in flight. Please try again later.",
    "max_num_queued_tokens": "The server's prefill backlog is full. Please try again later.",
}


class _Job:
    """A request in the engine: its answer and what is recorded when it ends."""

    __slots__ = ("answer", "arrived_at", "generation", "last_at", "preemptions", "request", "request_id")

    def __init__(
        self,
        request_id: str,
        request: Request,
        generation: Generation,
        answer: StreamedAnswer | UnaryAnswer,
        arrived_at: float,
    ) -> None:
        self.request_id = request_id
        self.request = request
        self.generation = generation
        self.answer = answer
        self.arrived_at = arrived_at
        self.last_at = 0.0
        self.preemptions = 0


class Server:
    """Answers requests of any number of connections from one engine; `drain` and `die` are its two ways to stop."""

    def __init__(
        self,
        engine: Engine,
        metrics: EngineMetrics,
        registry: Registry,
        clock: SimulatedClock,
        *,
        model: str,
        served: tuple[str, ...],
        api_keys: tuple[str, ...] = (),
        load_tracking: bool = False,
        mfu: bool = False,
        process_metrics: bool = True,
        gpus: int = 1,
    ) -> None:
        self._engine = engine
        self._metrics = metrics
        self._registry = registry
        self._clock = clock
        self._http = HttpMetrics(registry)
        self._model = model
        self._served = served
        self._api_keys = api_keys
        self._load_tracking = load_tracking
        self._mfu = mfu
        self._process_metrics = process_metrics
        self._gpus = gpus
        self._driver = EngineDriver(engine, clock, self._on_step)
        self._serial = 0
        self._draining = False
        self._dead = False
        self._in_flight = 0
        self._started_at = time.time()
        self.connections: set[Connection] = set()
        self.prompt_tokens_total = 0
        self.generation_tokens_total = 0
        self.on_idle: Callable[[], None] | None = None
        self._routes: dict[tuple[str, str], Callable[[Request, Connection, float], None]] = {
            ("GET", "/health"): self._empty,
            ("GET", "/ping"): self._empty,
            ("POST", "/ping"): self._empty,
            ("GET", "/metrics"): self._scrape,
            ("GET", "/metrics/"): self._scrape,
            ("GET", "/version"): self._version,
            ("GET", "/load"): self._load,
            ("GET", "/v1/models"): self._models,
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/v1/completions"): self._completions,
            ("POST", "/v1/chat/completions"): self._chat,
        }
        self._paths = {path for _, path in self._routes}

    @property
    def engine(self) -> Engine:
        """The engine behind the routes."""
        return self._engine

    @property
    def busy(self) -> bool:
        """Whether any request is unanswered."""
        return self._in_flight > 0

    def drain(self) -> None:
        """Take no new generation; what is in flight ends as it would."""
        self._draining = True

    def die(self) -> None:
        """The engine is gone: nothing is answered any more, and no connection closed."""
        self._dead = True
        self._driver.stop()

    # ---------------------------------------------------------------- routing
    def handle(self, request: Request, connection: Connection) -> None:
        """Answer one request, now or token by token."""
        if self._dead:
            return
        arrived_at = self._clock.now()
        if self._api_keys and request.path.startswith("/v1"):
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            if given not in self._api_keys:
                self._reply(request, connection, arrived_at, status=401, body=b'{"error":"Unauthorized"}')
                return
        route = self._routes.get((request.method, request.path))
        if route is not None:
            route(request, connection, arrived_at)
        elif request.path in self._paths:
            self._reply(request, connection, arrived_at, status=405, body=b'{"detail":"Method Not Allowed"}')
        else:
            self._reply(request, connection, arrived_at, status=404, body=b'{"detail":"Not Found"}')

    def _reply(
        self,
        request: Request,
        connection: Connection,
        arrived_at: float,
        *,
        body: bytes = b"",
        status: int = 200,
        content_type: bytes = b"application/json",
    ) -> None:
        connection.respond(status, body, content_type)
        handler = request.path if request.path in self._paths else "none"
        seconds = self._clock.now() - arrived_at
        self._http.record(
            handler, request.method, status, seconds=seconds, size=len(request.body), answer_size=len(body)
        )

    def _refuse(self, request: Request, connection: Connection, arrived_at: float, error: ClientError) -> None:
        body = error_body(error.status, error.kind, error.message, error.param)
        self._reply(request, connection, arrived_at, status=error.status, body=body)

    # ---------------------------------------------------------------- small routes
    def _empty(self, request: Request, connection: Connection, arrived_at: float) -> None:
        self._reply(request, connection, arrived_at)

    def _version(self, request: Request, connection: Connection, arrived_at: float) -> None:
        self._reply(request, connection, arrived_at, body=orjson.dumps({"version": VERSION}))

    def _load(self, request: Request, connection: Connection, arrived_at: float) -> None:
        load = self._in_flight if self._load_tracking else 0
        self._reply(request, connection, arrived_at, body=orjson.dumps({"server_load": load}))

    def render_metrics(self) -> bytes:
        """The exposition as of now."""
        self._metrics.gauges(self._engine)
        return self._registry.render(process_lines(self._started_at) if self._process_metrics else [])

    def _scrape(self, request: Request, connection: Connection, arrived_at: float) -> None:
        self._reply(request, connection, arrived_at, body=self.render_metrics(), content_type=_TEXT)

    def _models(self, request: Request, connection: Connection, arrived_at: float) -> None:
        models: list[dict[str, Any]] = [
            {
                "id": name,
                "object": "model",
                "created": int(self._started_at),
                "owned_by": "vllm",
                "root": self._model,
                "parent": None,
                "max_model_len": self._engine.config.max_model_len,
                "permission": [],
            }
            for name in self._served
        ]
        self._reply(request, connection, arrived_at, body=orjson.dumps({"object": "list", "data": models}))

    def _tokenize(self, request: Request, connection: Connection, arrived_at: float) -> None:
        try:
            body = orjson.loads(request.body)
            chat = isinstance(body, dict) and "messages" in body
            generation = self._parsed(request, chat=chat)
        except (orjson.JSONDecodeError, ClientError) as error:
            refusal = error if isinstance(error, ClientError) else ClientError(400, "BadRequestError", str(error))
            self._refuse(request, connection, arrived_at, refusal)
            return
        count = generation.prompt.tokens
        answer = {"count": count, "max_model_len": self._engine.config.max_model_len, "tokens": list(range(count))}
        self._reply(request, connection, arrived_at, body=orjson.dumps(answer))

    # ---------------------------------------------------------------- generation
    def _parsed(self, request: Request, *, chat: bool) -> Generation:
        config = self._engine.config
        return parse(
            request.body,
            chat=chat,
            served=self._served,
            max_model_len=config.max_model_len,
            block_size=config.block_size,
        )

    def _completions(self, request: Request, connection: Connection, arrived_at: float) -> None:
        self._generate(request, connection, arrived_at, chat=False)

    def _chat(self, request: Request, connection: Connection, arrived_at: float) -> None:
        self._generate(request, connection, arrived_at, chat=True)

    def _generate(self, request: Request, connection: Connection, arrived_at: float, *, chat: bool) -> None:
        try:
            generation = self._parsed(request, chat=chat)
            if self._draining:
                raise ClientError(500, "InternalServerError", "cannot schedule new futures after shutdown")
            self._accept(request, connection, arrived_at, generation, chat=chat)
        except AdmissionRejectedError as rejection:
            self._metrics.rejected(rejection.reason)
            text = _REJECTION_TEXT[rejection.reason]
            self._refuse(request, connection, arrived_at, ClientError(503, "Service Unavailable", text))
        except RequestError as error:
            self._refuse(request, connection, arrived_at, ClientError(400, "BadRequestError", str(error)))
        except ClientError as error:
            self._refuse(request, connection, arrived_at, error)

    def _accept(
        self, request: Request, connection: Connection, arrived_at: float, generation: Generation, *, chat: bool
    ) -> None:
        self._serial += 1
        request_id = str(self._serial)
        shown = request.headers.get("x-request-id") or f"{int(self._started_at * 1000):x}{self._serial:08x}"
        kind = ("chat.completion.chunk" if generation.stream else "chat.completion") if chat else "text_completion"
        envelope: dict[str, Any] = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{shown}",
            "object": kind,
            "created": int(time.time()),
            "model": generation.model,
        }
        answer: StreamedAnswer | UnaryAnswer
        if generation.stream:
            answer = StreamedAnswer(
                connection,
                envelope,
                chat=chat,
                prompt_tokens=generation.prompt.tokens,
                include_usage=generation.include_usage,
                running_usage=generation.running_usage,
            )
        else:
            answer = UnaryAnswer(connection, envelope, chat=chat, prompt_tokens=generation.prompt.tokens)
        job = _Job(request_id, request, generation, answer, arrived_at)
        asked = EngineRequest(
            request_id, generation.prompt.tokens, generation.output_tokens, generation.prompt.block_hashes
        )
        self._driver.submit(asked, arrived_at, job)
        self._in_flight += 1
        connection.on_lost = lambda: self._lost(job)
        answer.accepted()

    def _lost(self, job: _Job) -> None:
        """The client went away: vLLM drops the request and counts it nowhere."""
        if not job.answer.closed:
            job.answer.closed = True
            self._driver.abort(job.request_id)
            self._left()

    def _left(self) -> None:
        self._in_flight -= 1
        if self._in_flight == 0 and self.on_idle is not None:
            self.on_idle()

    def _on_step(self, result: StepResult, now: float) -> None:
        """Hand out the tokens of a step. Client-side times are of the wall clock, the engine's own of the model."""
        metrics = self._metrics
        prompt_tokens = 0
        for sequence in result.first_tokens:
            prompt_tokens += sequence.request.prompt_tokens
            metrics.first_token(sequence, now - sequence.arrived_at)
        metrics.step(result, prompt_tokens)
        self.prompt_tokens_total += prompt_tokens
        self.generation_tokens_total += result.generated_tokens
        if self._mfu:
            self._count_work(result)
        ends_at = result.ends_at
        gap, times = 0.0, 0
        for sequence in result.emitted:
            job: _Job = sequence.owner
            if job.answer.closed:
                continue
            if job.last_at:
                waited = ends_at - job.last_at
                if waited != gap and times:
                    metrics.inter_token(gap, times)
                    times = 0
                gap = waited
                times += 1
            job.last_at = ends_at
            if sequence.preemptions != job.preemptions:
                metrics.preempted(sequence.preemptions - job.preemptions)
                job.preemptions = sequence.preemptions
            last = sequence.generated >= sequence.target
            for _ in range(sequence.generated - job.answer.sent - (1 if last else 0)):
                job.answer.token(None)
            if last and not job.answer.closed:
                self._finish(sequence, job, now)
        if times:
            metrics.inter_token(gap, times)

    def _finish(self, sequence: EngineSequence, job: _Job, now: float) -> None:
        generation = job.generation
        self._metrics.finished(sequence, generation.finish_reason, now - sequence.arrived_at, generation.max_tokens)
        seconds = self._clock.now() - job.arrived_at
        self._http.record(job.request.path, "POST", 200, seconds=seconds, size=len(job.request.body))
        job.answer.token(generation.finish_reason)
        self._left()

    def _count_work(self, result: StepResult) -> None:
        times = self._engine.times
        read = times.weights_bytes + result.kv_tokens_read * times.kv_bytes_per_token
        self._metrics.flops.add(result.flops / self._gpus)
        self._metrics.read_bytes.add(read / self._gpus)
        self._metrics.write_bytes.add(result.tokens * times.kv_bytes_per_token / self._gpus)
