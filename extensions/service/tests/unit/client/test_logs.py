"""``hostcore logs --server``: what a stream of lines says."""

import json
from collections.abc import Callable
from typing import Any

import pytest

NDJSON = {"Content-Type": "application/x-ndjson"}
JOB = json.dumps({"run_id": "a", "status": "running", "trainer": "tiny", "submitted_ms": 1, "attempt": 1}).encode()


@pytest.mark.parametrize("output", [True, False], ids=["output", "events"])
def test_empty_lines_say_that_the_service_is_there_and_nothing_else(
    script: Callable, answer: Any, ask: Callable, output: bool
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
    said = ask(server, "logs", "a", "--output" if output else "--json")
    assert said.out == ("1 of 2\n2 of 2\n" if output else f"{first}\n{second}\n")
    assert "since=1" in server.asked[2].path


def test_a_connection_that_is_cut_again_and_again_brings_all_lines(
    script: Callable, answer: Any, ask: Callable
) -> None:
    lines = [f'{{"schema":"x","seq":{n},"attempt":1}}\n' for n in range(1, 8)]
    pieces = [answer(body=line.encode(), headers=NDJSON, cut=True) for line in lines[:-1]]
    server = script(answer(body=JOB), *pieces, answer(body=lines[-1].encode(), headers=NDJSON))
    assert ask(server, "logs", "a", "--json").out == "".join(lines)
