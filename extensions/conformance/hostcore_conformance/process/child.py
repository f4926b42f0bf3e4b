"""``python -m hostcore_conformance.process.child``: makes the checks of one plugin, in a process that may die of it.

A :class:`~hostcore_conformance.process.exchange.CheckRequest` comes on standard input; events go to the file descriptor
that the first argument names. Standard output and standard error are the plugin's.
"""

import faulthandler
import gc
import os
import sys
from collections.abc import Set
from pathlib import Path
from typing import BinaryIO, NoReturn

import attrs

from hostcore.plugins.errors import as_content, from_exception
from hostcore.secrets.reference import remember_secrets
from hostcore.secrets.scrub import scrub
from hostcore_conformance.asking import open_session
from hostcore_conformance.check import Check, checks_for, with_required
from hostcore_conformance.process.exchange import Begun, CheckRequest, Done, Ended, Event, Opened, Refused, encode
from hostcore_conformance.process.fork_server import fork_server, makes_runs
from hostcore_conformance.result import CheckResult
from hostcore_conformance.session import Session, selected
from hostcore_conformance.subject import find_plugin
from hostcore_hookspecs.errors import HostcoreError


def main() -> NoReturn:
    """Make the checks, and end the process without asking the plugin's threads and exit handlers."""
    answers = _Answers(int(sys.argv[1]))
    request = CheckRequest.decode(sys.stdin.buffer.read())
    with open(os.devnull) as nothing:  # noqa: PTH123 - a plugin that asks for input gets none
        os.dup2(nothing.fileno(), 0)
    try:
        with Path(request.trace).open("ab") as trace:
            _answer(request, answers, trace)
    except KeyboardInterrupt:
        _leave(130)
    except BrokenPipeError:  # the parent process does not read the answers any more
        _leave(1)
    _leave(0)


class _Answers:
    """Writer of events. Not inherited by what the plugin starts."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor

    def send(self, event: Event) -> None:
        data = memoryview(encode(event))
        while data:
            data = data[os.write(self._descriptor, data) :]


def _answer(request: CheckRequest, answers: _Answers, trace: BinaryIO) -> None:
    faulthandler.enable(trace)
    gc.disable()  # until all is imported; see `preload`
    try:
        _import_runs(_families(request))
        session = _open(request)
        wanted = session.select(request.only)
    except HostcoreError as error:
        answers.send(Refused(errors=as_content(error)))
        return
    with session:
        checks = with_required(wanted, session.checks)
        example = session.example
        answers.send(
            Opened(
                ref=session.ref,
                ids=[check.id for check in checks],
                complete=wanted == session.checks,
                example=[example.settings, example.job],
            )
        )
        known = {one.id for one in request.known}
        gc.freeze()
        gc.enable()
        for check in checks:
            if check.id in known:
                continue
            result = _made(session, check, request, answers, trace)
            answers.send(Ended(result=_without_secrets(result), wanted=check in wanted, printed=_printed()))
        answers.send(Done())


def _families(request: CheckRequest) -> set[str]:
    """The checks that are to be made, before the example is there.

    :raises HostcoreError: There is no such plugin.
    """
    of_kind = checks_for(find_plugin(request.name, request.kind).kind)
    known = {one.id for one in request.known}
    checks = with_required(selected(of_kind, request.only), of_kind)
    return {check.family for check in checks if check.id not in known}


def _import_runs(families: Set[str]) -> None:
    """Import what the runs of some checks need, before any code of the plugin is there."""
    if makes_runs(families, fresh=True):
        fork_server().prepare(fresh=True)
    if makes_runs(families):
        fork_server().fork_here()


def _made(session: Session, check: Check, request: CheckRequest, answers: _Answers, trace: BinaryIO) -> CheckResult:
    if request.fatal is not None and check.id == request.fatal.id:
        return session.judge(check, request.fatal)
    answers.send(Begun(id=check.id, title=check.title, level=check.level, printed=_printed()))
    os.ftruncate(trace.fileno(), 0)
    faulthandler.dump_traceback_later(request.timeout_seconds, file=trace)
    try:
        return session.result(check)
    finally:
        faulthandler.cancel_dump_traceback_later()
        _flush()


def _open(request: CheckRequest) -> Session:
    try:
        session = open_session(
            request.name, kind=request.kind, settings=request.settings, job=request.job, start=Path(request.start)
        )
    except HostcoreError:
        raise
    except Exception as error:
        raise from_exception(
            "checked with its example",
            error,
            code="conformance.example",
            ref=find_plugin(request.name, request.kind),
            pointer=None,
        ) from error
    remember_secrets([session.example.settings, session.example.job])
    session.adopt(request.known)
    return session


def _without_secrets(result: CheckResult) -> CheckResult:
    return attrs.evolve(
        result,
        message=scrub(result.message),
        expected=scrub(result.expected),
        got=scrub(result.got),
        fix=scrub(result.fix),
        traceback=scrub(result.traceback),
    )


def _printed() -> int:
    """The size of the file that standard output goes to."""
    return os.fstat(1).st_size


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()


def _leave(code: int) -> NoReturn:
    _flush()
    os._exit(code)


if __name__ == "__main__":
    main()
