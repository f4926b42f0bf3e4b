"""A run's events made by hand, and a stand-in for the server of Weights & Biases, which no test could start.

The server answers what wandb asks of a run, keeps the lines of the history that arrive, and fails as it is told to:
``server.answers = "503"``, ``"401"`` or ``"nothing"``.
"""

import gzip
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest
from http_serving import serving

from hostcore_hookspecs import Event, Job, ReporterContext
from hostcore_hookspecs.events import Payload


@attrs.define
class Course:
    """The events of a run, numbered, a second apart, and written to its log."""

    run_dir: Path
    run_id: str = "flights-1"
    job: Job = attrs.field(factory=lambda: Job(trainer="flights", hyperparams={"lr": 0.1, "sizes": [64, 8]}))
    submitted_ms: int = 1_700_000_000_000
    events: list[Event] = attrs.field(factory=list)
    attempt: int = 1

    def tell(self, payload: Payload, *, step: int | None = None, epoch: int | None = 0) -> Event:
        """One more event."""
        seq = len(self.events) + 1
        event = Event(
            seq=seq,
            time_ms=self.submitted_ms + (seq - 1) * 1000,
            run_id=self.run_id,
            attempt=self.attempt,
            step=step,
            epoch=epoch,
            payload=payload,
        )
        self.events.append(event)
        log = self.run_dir / "logs" / "events.jsonl"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as opened:
            opened.write(orjson.dumps(event.as_dict(), default=dict, option=orjson.OPT_APPEND_NEWLINE))
        return event

    def ctx(self, *, last_seq: int = 0) -> ReporterContext:
        return ReporterContext(
            run_id=self.run_id, attempt=self.attempt, job=self.job, run_dir=str(self.run_dir), last_seq=last_seq
        )

    def report(self, reporter: Any, told: Sequence[Event]) -> None:
        """What one process does with a reporter."""
        before = [event.seq for event in self.events if event.attempt < self.attempt]
        reporter.open(self.ctx(last_seq=max(before, default=0)))
        for event in told:
            reporter.report_event(event)
        reporter.close()


@pytest.fixture
def course(tmp_path: Path) -> Callable[..., Course]:
    """``course(run_id="flights-1")``: a run without events."""

    def make(name: str = "run", **fields: Any) -> Course:
        run_dir = tmp_path / "runs" / name
        run_dir.mkdir(parents=True)
        return Course(run_dir, **fields)

    return make


@attrs.define(eq=False)
class RunOfServer:
    """What the server has of a run."""

    project: str
    #: What wandb has said of it.
    said: dict[str, Any]
    history: list[dict[str, Any]] = attrs.field(factory=list)
    summary: dict[str, Any] = attrs.field(factory=dict)
    exit_code: int | None = None


@attrs.define(eq=False)
class WandbServer:
    """Runs by their ids, and how requests are answered."""

    url: str = ""
    runs: dict[str, RunOfServer] = attrs.field(factory=dict)
    answers: str = "200"
    requests: int = 0
    #: Set: go on answering what was not answered.
    go_on: threading.Event = attrs.field(factory=threading.Event)

    def ask(self, operation: str, variables: dict[str, Any]) -> dict[str, Any]:
        """The data that a query of GraphQL is answered with."""
        match operation:
            case "RunResumeStatus":
                return {"model": {"id": "1", "name": "p", "entity": _ENTITY, "bucket": self._bucket(variables["name"])}}
            case "UpsertBucket":
                run = self.runs.setdefault(variables["name"], RunOfServer(variables["project"], variables))
                run.said = {**run.said, **{key: value for key, value in variables.items() if value is not None}}
                project = {"id": "1", "name": run.project, "entity": _ENTITY}
                bucket = {**(self._bucket(variables["name"]) or {}), "sweepName": None, "project": project}
                return {"upsertBucket": {"bucket": bucket, "inserted": True}}
            case "CreateRunFiles":
                files = [{"name": name, "uploadUrl": f"{self.url}/upload"} for name in variables["files"]]
                return {"createRunFiles": {"runID": "1", "uploadHeaders": [], "files": files}}
        return {}

    def stream(self, run: RunOfServer, sent: dict[str, Any]) -> None:
        """Take lines of the history, each at its place, and the summary."""
        files = sent.get("files", {})
        if lines := files.get("wandb-history.jsonl"):
            run.history[lines["offset"] :] = map(json.loads, lines["content"])
        if summary := files.get("wandb-summary.json"):
            run.summary = json.loads(summary["content"][-1])
        if sent.get("complete"):
            run.exit_code = sent["exitcode"]

    def _bucket(self, name: str) -> dict[str, Any] | None:
        run = self.runs.get(name)
        return run and {
            "id": "1", "name": name, "displayName": run.said.get("displayName"), "description": None, "notes": None,
            "config": run.said.get("config") or "{}", "tags": run.said.get("tags") or [], "wandbConfig": '{"t": 1}',
            "summaryMetrics": json.dumps(run.summary), "historyLineCount": len(run.history), "logLineCount": 0,
            "historyTail": json.dumps([json.dumps(line) for line in run.history[-1:]]), "eventsLineCount": 0,
            "eventsTail": "[]",
        }  # fmt: skip


_ENTITY = {"id": "1", "name": "team"}


@pytest.fixture
def wandb_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    """The server, while it listens."""
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    state = WandbServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            if self.headers["Content-Encoding"] == "gzip":
                body = gzip.decompress(body)
            state.requests += 1
            if state.answers == "nothing":
                state.go_on.wait(60)
            status = int(state.answers) if state.answers.isdecimal() else 503
            self._reply(status, self._answer(body) if status == 200 else {"errors": [{"message": "no"}]})

        def do_PUT(self) -> None:
            self.do_POST()

        def _answer(self, body: bytes) -> dict[str, Any]:
            if self.path.endswith("/graphql"):
                query = json.loads(body)
                return {"data": state.ask(query["operationName"], query["variables"])}
            if self.path.endswith("/file_stream"):
                state.stream(state.runs[self.path.split("/")[-2]], json.loads(body))
            return {}

        def _reply(self, status: int, answer: dict[str, Any]) -> None:
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            """Quiet."""

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:
                """The client waits no longer."""

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as state.url:
        yield state
        state.go_on.set()
