"""``hostcore logs --server``: what a stream of lines says."""

import json
from collections.abc import Callable
from typing import Any

import pytest

NDJSON = {"Content-Type": "application/x-ndjson"}
JOB = json.dumps({"run_id": "a", "status": "running", "trainer": "tiny", "submitted_ms": 1, "attempt": 1}).encode()


@pytest.mark.parametrize("output", [True, False], ids=["output", "events"])
def test_a_connection_that_is_cut_again_and_again_brings_all_lines_and_empty_ones_say_nothing(
    script: Callable, answer: Any, ask: Callable, output: bool
) -> None:
    form = '{{"text":"line {0}\\n","next":"{0}"}}\n' if output else '{{"schema":"x","seq":{0},"attempt":1}}\n'
    lines = [form.format(number) for number in range(1, 8)]
    pieces = [answer(body=f"\n\n{line}\n".encode(), headers=NDJSON, cut=True) for line in lines[:-1]]
    server = script(answer(body=JOB), *pieces, answer(body=f"\n{lines[-1]}".encode(), headers=NDJSON))
    said = ask(server, "logs", "a", "--output" if output else "--json")
    assert said.out == ("".join(f"line {number}\n" for number in range(1, 8)) if output else "".join(lines))
    assert "since=1" in server.asked[2].path
