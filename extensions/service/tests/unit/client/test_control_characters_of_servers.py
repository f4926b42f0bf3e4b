"""What a service answers does not steer the terminal that a command shows it on."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
from hostile_text import HOSTILE, orders_in
from terminal import on_terminal

PROBLEM = {"Content-Type": "application/problem+json"}
ERROR = {"type": HOSTILE, "message": HOSTILE, "traceback": HOSTILE, "plugin": HOSTILE, "rank": None, "hint": HOSTILE}
RUN = {
    "metrics": {HOSTILE: 1.0},
    "checkpoints": [],
    "attempts": [],
    "reason": HOSTILE,
    "error": ERROR,
    "best": {"metric": HOSTILE, "value": 1.0, "step": 3},
    "lost": HOSTILE,
    "eta_seconds": None,
    "samples_per_second": None,
    "devices": [HOSTILE, HOSTILE],
    "plugins": [{"kind": HOSTILE, "name": HOSTILE, "distribution": HOSTILE, "version": HOSTILE}],
    "parent": HOSTILE,
}
JOB = {
    "run_id": "bad",
    "status": "lost",
    "launcher": HOSTILE,
    "engine_id": HOSTILE,
    "detail": HOSTILE,
    "trainer": HOSTILE,
    "attempt": 1,
    "submitted_ms": 1,
    "run": RUN,
}
EVENT = {
    "schema": "v1",
    "seq": 1,
    "time_ms": 1,
    "run_id": "bad",
    "attempt": 1,
    "src": "host",
    "step": 1,
    "epoch": 0,
    "event": "warning",
    "code": HOSTILE,
    "message": HOSTILE,
}
PLUGIN = {
    "kind": "trainer",
    **dict.fromkeys(("name", "value", "distribution", "version"), HOSTILE),
    "conformance": None,
}
REFUSED = {"type": "urn:hostcore:problem:job.invalid", "errors": [
    {"code": "job.invalid", "detail": HOSTILE, "pointer": f"/{HOSTILE}\nhint: none", "hint": HOSTILE}
]}  # fmt: skip


@pytest.fixture
def url(script: Callable, answer: Any) -> str:
    """A service that means ill."""

    def answer_to(asked: Any) -> Any:
        path = urlsplit(asked.path).path
        if path.endswith("/events"):
            return answer(body=orjson.dumps(EVENT) + b"\n", headers={"Content-Type": "application/x-ndjson"})
        if path.endswith("/logs"):
            line = orjson.dumps({"next": "1", "text": f"{HOSTILE.replace('|', '')}\n"}) + b"\n"
            return answer(body=line, headers={"Content-Type": "application/x-ndjson"})
        if path.endswith(":validate"):
            return answer(status=422, body=orjson.dumps(REFUSED), headers=PROBLEM)
        documents = {"/v1/plugins": {"plugins": [PLUGIN], "broken": []}, "/v1/jobs": {"jobs": [JOB], "next": None}}
        return answer(body=orjson.dumps(documents.get(path, JOB)))

    return str(script(answer_to).url)


@pytest.mark.parametrize(
    "command",
    ["logs bad", "logs bad --output", "status bad -v", "list", "plugins", "validate job.json"],
)
def test_a_command_shows_what_a_server_answers_and_obeys_none_of_it(command: str, url: str, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_bytes(orjson.dumps({"trainer": "mine", "max_steps": 1}))
    variables = {**os.environ, "TRAINER_API_TOKEN": "t" * 40}
    shown = on_terminal(*command.split(), "--server", url, cwd=tmp_path, env=variables)
    screen = shown.text.replace("\x1b[8m", "").replace("\r", "") if "--output" in command else shown.text
    assert orders_in(screen) == []
    assert "]0;own" in shown.text
