"""``python -m``: a process that reports a run and comes to its end at once."""

import time
from pathlib import Path
from typing import Any

from hostcore.events.codec import decode_event
from hostcore_conformance.call_thread import CallThread
from hostcore_conformance.process.isolated import CLOSED, told_here
from hostcore_hookspecs.job import Job
from hostcore_hookspecs.reporter import ReporterContext


def main() -> None:
    """Report what is in a log."""
    subject, told = told_here()
    log = Path(told["log"])
    component = subject.component()
    hooks = subject.hooks(component)
    job = Job(run_id=told["run_id"], trainer="conformance")
    ctx = ReporterContext(run_id=told["run_id"], attempt=1, job=job, run_dir=str(log.parent.parent))
    with CallThread(subject) as thread:

        def call(method: str, *arguments: Any) -> None:
            if bound := hooks.bind(method, of=component):
                thread.call(method, bound, *arguments)

        call("open", ctx)
        for line in log.read_bytes().splitlines():
            call("report_event", decode_event(line))
        call("close")
    time.sleep(told["linger_seconds"])
    print(CLOSED, flush=True)


if __name__ == "__main__":
    main()
