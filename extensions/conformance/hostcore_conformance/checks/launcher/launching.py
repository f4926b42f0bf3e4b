"""Checks of launching: exactly the command is started, and lives without its launcher."""

import json

import attrs

from hostcore_conformance.check import check
from hostcore_conformance.checks.launcher.stage import (
    NOT_OVER,
    CheckedLauncher,
    Instructions,
    context,
    launched,
    launched_elsewhere,
    patience,
    require_programs_run_here,
    until,
)
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.launcher import LaunchHandle

#: What shells, batch scripts and templates like to take for something of their own.
HOSTILE = (
    "two words",
    "",
    " ",
    "it's",
    'say "no"',
    "'; exit 3; '",
    "$(exit 3)",
    "`exit 3`",
    "$HOME ${HOME} $$",
    "; exit 3",
    "a && b || c | d & e",
    "> /dev/null < /dev/null",
    "*",
    "[a-z]?",
    "~",
    "#comment",
    "!history",
    "back\\slash \\n",
    "a line\nanother line",
    "tab\tand\r",
    "--help",
    "-",
    "key=value",
    "{{ template }} {0} %s %(a)s",
    "a, b; c: d",
    "übergröße 日本語 🚀",
)


@check("launcher.launches")
def launches(subject: Subject) -> None:
    """Launching returns while the command runs, with a handle that survives being written as JSON.

    The kit's program is launched, and waits some seconds to be allowed to end: a launcher that waits for its end
    returns too late. The handle goes into a file as JSON and comes back equal: other processes poll with what they read
    there, days later. Objects, bytes and tuples do not survive that.
    """
    told: list[str] = []
    instructions = Instructions(prints=[(1, b"", "go")], gate_seconds=patience(subject))
    one = launched(subject, instructions, log=told.append)
    try:
        one.started()
        _require_plain(one.handle)
        if not all(isinstance(line, str) and len(line.splitlines()) == 1 for line in told):
            raise ConformanceError(
                expected="ctx.log to be called with one line at a time", got=repr(told), fix="Call it for each line."
            )
        if not one.is_running:
            raise ConformanceError(
                expected="launch to return while the command runs",
                got="the command had ended when launch returned",
                fix="Return as soon as the engine has accepted it; do not wait for its end.",
            )
    finally:
        one.open_gate("go")
    one.over()


def _require_plain(handle: object) -> None:
    if not isinstance(handle, LaunchHandle):
        raise ConformanceError(
            expected="launch to return a LaunchHandle",
            got=repr(handle),
            fix="return LaunchHandle(launcher=…, id=…, details={…}), from hostcore_hookspecs.",
        )
    fix = "Put strings, numbers, lists and dictionaries with string keys into it, and nothing else."
    try:
        back = LaunchHandle(**json.loads(json.dumps(attrs.asdict(handle), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise ConformanceError(expected="a handle of plain JSON", got=f"{handle!r}: {error}", fix=fix) from None
    if back != handle or not all(isinstance(text, str) and text for text in (handle.launcher, handle.id)):
        raise ConformanceError(
            expected="the handle to come back equal from JSON, launcher and id being texts",
            got=f"{handle!r}, and {back!r} after it",
            fix=fix,
        )


@check("launcher.quoting", requires=("launcher.launches",), variants=("arguments", "environment"))
def quoting(subject: Subject, variant: str) -> None:
    """The command and its environment arrive byte for byte, whatever is in them.

    The program is launched with arguments (or with values of ctx.env) that contain spaces, quotes, $(…), newlines,
    semicolons, globs, leading dashes and other scripts, and some that are empty. It writes down what it got.

    ctx.command is a list of arguments, not a line for a shell. A launcher that writes a script quotes each of them
    with shlex.quote; one that writes YAML or JSON uses a library for it. Paths of users have spaces; a value that is
    taken for a command is how a job takes over a machine.
    """
    require_programs_run_here(subject)
    if variant == "arguments":
        one = launched(subject, arguments=HOSTILE)
        got = [bytes.fromhex(text) for text in one.started()["arguments"]]
        expected = [text.encode() for text in HOSTILE]
        names = [f"argument {number}" for number in range(len(expected))]
    else:
        env = {f"HOSTCORE_CHECK_{number}": text for number, text in enumerate(HOSTILE)}
        one = launched(subject, env=env)
        found = one.started()["environment"]
        got = [bytes.fromhex(found.get(name, b"(not set)".hex())) for name in env]
        expected, names = [text.encode() for text in env.values()], list(env)
    one.over()
    if len(got) != len(expected):
        raise ConformanceError(
            expected=f"{len(expected)} arguments to arrive",
            got=f"{len(got)}, which begin with {[one.decode(errors='replace') for one in got[:4]]}",
            fix="Hand ctx.command on as a list; in a script, shlex.join(ctx.command).",
        )
    for name, wanted, arrived in zip(names, expected, got, strict=True):
        if wanted != arrived:
            raise ConformanceError(
                expected=f"{name} to arrive as {wanted.decode()!r}",
                got=repr(arrived.decode(errors="replace")),
                fix="Hand values on without a shell, or with shlex.quote; in YAML or JSON, with a library.",
            )


@check("launcher.odd_run_dir", requires=("launcher.launches",))
def odd_run_dir(subject: Subject) -> None:
    """A run directory whose path has spaces, quotes and other scripts works like any other.

    The program is launched with such a run directory, prints something and succeeds. Its end and its log must be found.
    Runs lie where users put them: "My Drive/Läufe (neu)/it's".
    """
    run_dir = subject.folder() / "My Drive $HOME" / "Läufe 日本 (neu); it's #1"
    one = launched(subject, Instructions(prints=[(1, b"it prints\n", "")]), run_dir=run_dir)
    status = one.over()
    log, _ = one.launcher.read_all(one.handle)
    if status.status != "succeeded" or "it prints\n" not in log:
        raise ConformanceError(
            expected=f"a program that ran in {str(run_dir)!r} to have succeeded, and 'it prints' in its log",
            got=f"{status!r}, and the log {log[-400:]!r}",
            fix="Quote paths wherever they become part of a line of text.",
        )


@check("launcher.missing_command", requires=("launcher.launches",))
def missing_command(subject: Subject) -> None:
    """A command that does not exist is refused with a HostcoreError, or found to have failed.

    A launcher that starts programs itself raises FatalError, with the program. One that hands it to an engine may only
    learn of it later: then poll reports failed or lost. A bare FileNotFoundError is neither.
    """
    require_programs_run_here(subject)
    _, ctx = context(subject, Instructions())
    ctx = attrs.evolve(ctx, command=[str(subject.folder() / "no-such-program"), "--flag"])
    launcher = CheckedLauncher(subject)
    expected = "a FatalError or a TransientError, or a launch that poll reports as failed or lost"
    try:
        handle = launcher.launch(ctx)
    except HostcoreError:
        return
    except Exception as error:
        raise ConformanceError(
            expected=expected, got=f"{type(error).__name__}: {error}", fix="raise FatalError(…) from error"
        ) from error
    until(lambda: launcher.poll(handle).status not in NOT_OVER, patience(subject))
    status = launcher.poll(handle)
    if status.status not in ("failed", "lost"):
        raise ConformanceError(expected=expected, got=repr(status), fix="Look whether the command could be started.")


@check("launcher.outlives", requires=("launcher.launches",))
def outlives(subject: Subject) -> None:
    """A launched command keeps running when the process that launched it is gone.

    Another process loads the plugin, launches the program and ends; then its process group is killed, as happens when a
    terminal is closed. The program must still run, and print.

    `hostcore run --detach` returns at once, and the service is restarted while runs are active. A launcher that starts
    processes gives them a session of their own (setsid, start_new_session=True) and no pipe that it reads itself.
    """
    one = launched_elsewhere(subject)
    one.open_gate("on")
    one.until(lambda: not one.is_running or "after\n" in one.launcher.read_all(one.handle)[0])
    if not one.is_running:
        raise ConformanceError(
            expected="the program to go on after the process that launched it has ended",
            got="it was gone",
            fix="Start it in a session of its own: start_new_session=True; its output goes to a file, not to a pipe.",
        )


@check("launcher.polled_elsewhere", requires=("launcher.outlives",))
def polled_elsewhere(subject: Subject) -> None:
    """Another process follows a launch by its handle alone, from running to succeeded.

    What another process has launched is polled here by a new instance of the plugin, with a handle that was read from
    JSON. It must report submitted or running as long as the program runs, and succeeded after it has ended with a
    result.

    State in the instance, a Popen object or a dictionary of launches is not there in the other process. Everything
    needed goes into the handle; for a process, that is more than its number, which is given to others later.
    """
    one = launched_elsewhere(subject)
    status = one.launcher.poll(one.handle)
    fix = "Take everything from the handle; keep nothing in the instance."
    if status.status not in NOT_OVER:
        raise ConformanceError(expected="submitted or running while the program runs", got=repr(status), fix=fix)
    one.open_gate("go")
    status = one.over()
    if status.status != "succeeded":
        raise ConformanceError(
            expected="succeeded, after the program has ended with 0 and a result.json",
            got=repr(status),
            fix=fix,
        )
