"""``hostcore logs --server``: what a stream of lines says."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from hostcore_service.client.reading import show_remote_logs

NDJSON = {"Content-Type": "application/x-ndjson"}
JOB = json.dumps({"run_id": "a", "status": "running", "trainer": "tiny", "submitted_ms": 1, "attempt": 1}).encode()


@pytest.mark.parametrize("output", [True, False], ids=["output", "events"])
def test_empty_lines_say_that_the_service_is_there_and_nothing_else(
    script: Callable, answer: Any, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, output: bool
) -> None:
    first, second = (
        f'{{"text":"{n} of 2\\n","next":"{n}"}}' if output else f'{{"schema":"x","seq":{n},"attempt":1}}'
        for n in (1, 2)
    )
    server = script(
        answer(body=JOB),
        answer(body=f"\n{first}\n\n".encode(), headers=NDJSON, cut=True),
        answer(body=f"\n\n{second}\n".encode(), headers=NDJSON),
    )
    monkeypatch.setattr("hostcore_service.client.client.Client.of", lambda _url: server.client())
    options: dict[str, Any] = dict.fromkeys(("lines", "attempt", "since", "rank"))
    show_remote_logs(server.url, "a", follows=False, output=output, as_json=not output, **options)
    assert capsys.readouterr().out == ("1 of 2\n2 of 2\n" if output else f"{first}\n{second}\n")
    assert "since=1" in server.asked[2].path
