"""A plugin in a process of its own, to see how that ends."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore_conformance.call_thread import patience_seconds
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.example import Example
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.plan import PluginRef

#: What such a process prints when the plugin has nothing more to do.
CLOSED: Final = "hostcore conformance: closed"
#: So long may its end take then.
_END_SECONDS: Final = 10.0
#: Importing a plugin and its libraries, on a slow machine.
_BEGIN_SECONDS: Final = 60.0


def run_elsewhere(subject: Subject, module: str, told: Mapping[str, Any]) -> None:
    """Run a module that uses the plugin, and see that its process ends.

    :param module: What it does: ``python -m MODULE``; it begins with :func:`told_here`.
    :param told: What it needs to know beside the subject; plain JSON.
    :raises ConformanceError: It does not end, or ends otherwise than it should.
    """
    end_seconds = min(_END_SECONDS, patience_seconds(subject))
    document = {
        "ref": attrs.asdict(subject.ref),
        "folder": str(subject.example.folder),
        "settings": subject.settings,
        "scratch": str(subject.folder()),
        "patience_seconds": patience_seconds(subject),
        **told,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    try:
        output = _output(process, json.dumps(document, default=str), end_seconds)
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        lines = [line.strip() for line in output.splitlines() if line.strip() and line != CLOSED]
        is_closed = CLOSED in output
        raise ConformanceError(
            expected="the process to end with exit code 0 after close()"
            if is_closed
            else "a new process to come as far as close()",
            got=f"exit code {process.returncode}: {' | '.join(lines[-3:])}",
            fix="See what is done while the interpreter ends: atexit, __del__, threads that outlive close()."
            if is_closed
            else "See what a new process lacks that this one has.",
        )


def _output(process: "subprocess.Popen[str]", document: str, end_seconds: float) -> str:
    """What a process prints until its end.

    :raises ConformanceError: That does not come.
    """
    lines: list[str] = []
    closed = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if line.strip() == CLOSED:
                closed.set()
        closed.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert process.stdin is not None
    with process.stdin as stdin:
        stdin.write(document)
    is_closed = closed.wait(_BEGIN_SECONDS)
    try:
        process.wait(end_seconds if is_closed else 0)
    except subprocess.TimeoutExpired:
        pass
    else:
        reader.join()
        return "".join(lines)
    raise ConformanceError(
        expected="the process to end after close()",
        got=f"a process that still runs {end_seconds:g} s later"
        if is_closed
        else f"a process that has not come to close() within {_BEGIN_SECONDS:g} s",
        fix="Stop and join the plugin's threads in close(), or make them daemons: the interpreter waits for all others,"
        " and with it `hostcore run`.",
    )


def told_here() -> tuple[Subject, Mapping[str, Any]]:
    """In the process: the subject, and all that it was told."""
    told = json.load(sys.stdin)
    example = Example(settings=told["settings"], folder=Path(told["folder"]))
    return Subject(PluginRef(**told["ref"]), example, scratch=Path(told["scratch"])), told
