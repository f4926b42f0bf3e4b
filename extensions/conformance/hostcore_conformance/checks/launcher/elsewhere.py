"""A launch by another process, which is gone afterwards.

``python -P -m hostcore_conformance.checks.launcher.elsewhere REQUEST ANSWER``: loads the plugin, launches, and writes
the handle.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import attrs

from hostcore_conformance.checks.launcher.stage import (
    Instructions,
    Launched,
    Launcher,
    context,
    patience,
    require_programs_run_here,
)
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.example import Example
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.job import Job
from hostcore_hookspecs.launcher import LaunchContext, LaunchHandle
from hostcore_hookspecs.plan import PluginRef

#: For the start of an interpreter, the plugin's imports and the launch.
_SECONDS = 60.0


def launched_elsewhere(subject: Subject) -> Launched:
    """The program, launched by a process that is gone with all its group. Made once.

    It prints ``before``, waits for the gate ``on``, prints ``after``, and waits for the gate ``go``.
    """
    require_programs_run_here(subject)
    return subject.shared("launched elsewhere", lambda: _launch(subject))


def _launch(subject: Subject) -> Launched:
    folder, ctx = context(subject, Instructions(prints=[(1, b"before\n", "on"), (1, b"after\n", "go")]))
    request, answer = folder / "request.json", folder / "answer.json"
    plain = {key: value for key, value in attrs.asdict(ctx).items() if key not in ("job", "log")}
    request.write_text(
        json.dumps(
            {
                "ref": attrs.asdict(subject.ref),
                "settings": subject.settings,
                "folder": str(subject.example.folder),
                "context": plain,
            }
        )
    )
    said = folder / "said"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(request), str(answer)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    _end(process)
    if not answer.exists():
        lines = said.read_text(errors="replace").strip().splitlines()
        raise ConformanceError(
            expected="another process to be able to launch",
            got=f"it ended with {process.returncode}" + (f": {lines[-1]}" if lines else ""),
            fix="The plugin is imported and constructed there like here; look for what it takes from this process.",
        )
    one = Launched(
        launcher=Launcher(subject),
        handle=LaunchHandle(**json.loads(answer.read_text())),
        folder=folder,
        context=ctx,
        patience_seconds=patience(subject),
    )
    one.started()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return one


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise ConformanceError(
            expected=f"launch to return within {_SECONDS:g} s",
            got="it did not",
            fix="Return as soon as the engine has accepted it.",
        ) from None


def main() -> None:
    """The other process."""
    request = json.loads(Path(sys.argv[1]).read_text())
    example = Example(settings=request["settings"], folder=Path(request["folder"]))
    subject = Subject(PluginRef(**request["ref"]), example, scratch=Path(sys.argv[1]).parent)
    ctx = LaunchContext(**request["context"], job=Job(run_id="conformance"), log=print)
    handle = Launcher(subject).launch(ctx)
    part = Path(sys.argv[2]).with_suffix(".part")
    part.write_text(json.dumps(attrs.asdict(handle)))
    part.replace(sys.argv[2])


if __name__ == "__main__":
    main()
