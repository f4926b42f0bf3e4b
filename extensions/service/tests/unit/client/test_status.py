"""``hostcore status`` and ``hostcore plugins`` of a service: what it answers, as tables."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

JOB = {"run_id": "a", "status": "running", "trainer": "tiny", "submitted_ms": 1}


SAVED = {"step": 2, "epoch": 0, "bytes": 1, "attempt": 1, "saved_ms": 2, "final": False}
#: What a service answers of a job, and whether a line is shown: the engine's name, and the command to go on with it.
SHOWN: list[tuple[dict[str, Any], str, bool]] = [
    ({"launcher": "slurm", "engine_id": "4711"}, "engine slurm: 4711", True),
    ({"launcher": "slurm", "engine_id": None}, "engine", False),
    ({"status": "failed", "run": {"checkpoints": [SAVED]}}, "to go on hostcore resume a --server", True),
    ({"status": "failed", "run": {"checkpoints": []}}, "to go on", False),
    ({"status": "running", "run": {"checkpoints": [SAVED]}}, "to go on", False),
]


@pytest.mark.parametrize(("fields", "line", "is_shown"), SHOWN)
def test_what_is_known_of_a_job_is_shown_and_nothing_else(
    script: Callable, answer: Any, ask: Callable, fields: dict[str, Any], line: str, is_shown: bool
) -> None:
    said = ask(script(answer(body=json.dumps({**JOB, **fields}).encode())), "status", "a")
    assert said.code == 0, said.err
    lines = [" ".join(one.split()) for one in said.out.splitlines()]
    assert [one for one in lines if one.startswith(line)] != [] if is_shown else line not in "".join(lines), lines


PLUGIN = {"kind": "trainer", "name": "mine", "value": "mine:T", "distribution": "mine", "version": "1.0"}
REPORT = {"hostcore": "0.1.0", "api_version": "1.0.0", "python": "3.11", "created_ms": 1, "version": "0.9"}
REPORT |= {"certified": False, "summary": {"passed": 3, "failed": 0}, "failures": [], "is_of_installed_version": True}


def test_a_conformance_report_of_a_service_reads_as_one_of_this_machine(
    script: Callable, answer: Any, ask: Callable
) -> None:
    for report, cell in ((REPORT, "3 passed (of 0.9)"), (None, "-"), ({}, None)):
        found = {"plugins": [{**PLUGIN, "conformance": report}], "broken": []}
        server = script(answer(body=json.dumps(found).encode()))
        if cell is None:  # a report that is none
            assert ask(server, "plugins", "--json").json["errors"][0]["code"] == "service.foreign"
        else:
            assert re.split(r"  +", ask(server, "plugins").out.splitlines()[1])[3] == cell
