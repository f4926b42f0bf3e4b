"""Results and submissions of runs, as commands print them."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from hostcore.checkpoints.names import step_of_folder
from hostcore.cli.output import echo, print_json, style, warn
from hostcore.cli.wording import best_of, by_phase, figure, lasting, named_values, warnings_of
from hostcore.runs.directory import RunDirectory, runs_dir
from hostcore.runs.result import RunResult
from hostcore.secrets.scrub import scrub
from hostcore_hookspecs.errors import RunError

if TYPE_CHECKING:
    from hostcore.cli.run_client import RunHandle, StartedRun

_COLORS: Final = {"succeeded": "green", "failed": "red"}
#: The commands that a submission names.
_COMMANDS: Final = (("logs", "-f"), ("status",), ("cancel",))


def print_result(result: RunResult, run: "RunHandle", *, as_json: bool, note: str = "") -> None:
    """Print the result of a run: the summary on standard output, its error and undelivered parts on standard error.

    :param note: A few words behind its name.
    """
    for one in result.left:
        warn(one.message)
        if one.command:
            echo(f"    hint: {shlex.join([*one.command[:2], *run.words, *one.command[2:]])}", err=True)
    if as_json:
        print_json(result.as_dict())
        return
    if result.error:
        _print_error(result)
    echo(f"{in_color(result.status)}  {result.run_id}{f'  ({note})' if note else ''}")
    print_lines([*_facts(result), *run.places(result)])


def print_submission(run: "StartedRun", *, as_json: bool) -> None:
    """Print that a run was submitted."""
    if as_json:
        print_json(run.submission())
        return
    echo(f"{in_color('submitted')}  {run.run_id}")
    commands = [(words[0], shlex.join(["hostcore", *words, *run.words])) for words in _COMMANDS]
    print_lines([*commands, ("everything", run.place)])


def in_color(status: str) -> str:
    """Return a status in its colour."""
    return style(status, fg=_COLORS.get(status, "yellow"), bold=True)


def print_lines(lines: Sequence[tuple[str, str]]) -> None:
    """Print names and values below a head."""
    for line in named_values([(name, shown_path(value)) for name, value in lines]):
        echo(scrub(line))


def name_of(directory: RunDirectory) -> str:
    """Name a run as on a command line: by its run_id, or by its path if it is not in the usual folder."""
    if directory.path.parent == runs_dir():
        return directory.run_id
    path = shown_path(str(directory.path))
    return path if "/" in path else f"./{path}"  # without a slash it would be an id


def _print_error(result: RunResult) -> None:
    error = result.error
    assert error is not None
    if error.traceback:
        echo(scrub(error.traceback.rstrip("\n")), err=True)
    echo(f"{style('error:', fg='red', bold=True)} {scrub(error_with_place(error))}", err=True)
    if error.hint:
        echo(f"    hint: {scrub(error.hint)}", err=True)


def error_with_place(error: RunError) -> str:
    """Describe the error of a run, with its plugin and rank."""
    where = [f"in {error.plugin}"] if error.plugin else []
    where += [f"on rank {error.rank}"] if error.rank else []
    return f"{error.type}: {error.message}" + (f" ({', '.join(where)})" if where else "")


def _facts(result: RunResult) -> list[tuple[str, str]]:
    of_attempt = f" (of attempt {result.attempt})" if result.attempt > 1 else ""
    lines = [
        ("steps", f"{result.step:,} (epoch {result.epoch + 1})"),
        ("duration", f"{lasting((result.ended_ms - result.started_ms) / 1000)}{of_attempt}"),
    ]
    if result.restored_step is not None:
        lines.append(("weights", f"of step {result.restored_step:,}, as the metrics"))
    if result.reason:
        lines.insert(0, ("reason", result.reason))
    if result.status != "succeeded":
        lines += _not_saved(result)
    lines = [*warnings_of(result.warnings), *lines]
    lines += [(name, figure(value)) for name, value in by_phase(result.metrics).items()]
    if result.best:
        lines.append(("best", best_of(result.best)))
    return lines


def _not_saved(result: RunResult) -> list[tuple[str, str]]:
    """Return the line about steps that no checkpoint holds, if there are any."""
    newest = step_of_folder(PurePosixPath(result.final_checkpoint).name) if result.final_checkpoint else None
    if result.step <= (newest or 0):
        return []
    if newest is None:
        return [("not saved", 'all steps; "checkpoint_every" says how often to write a checkpoint')]
    return [("not saved", f"{result.step - newest:,} of these steps, since the checkpoint of step {newest:,}")]


def places_in(directory: RunDirectory, result: RunResult) -> list[tuple[str, str]]:
    """Name the files of a run, and the command that resumes it."""
    lines: list[tuple[str, str]] = []
    if result.final_checkpoint:
        lines.append(("checkpoint", os.path.normpath(directory.path / result.final_checkpoint)))
    if directory.has_samples:
        lines.append(("samples", str(directory.samples)))
    if directory.loss_plot.exists():
        lines.append(("loss curve", str(directory.loss_plot)))
    hooks = directory.rank_hooks(result.attempt, 0)
    if hooks.exists():
        lines.append(("hook calls", str(hooks)))
    output = directory.rank_output(result.attempt, (result.error.rank if result.error else None) or 0)
    if output.exists() and output.stat().st_size:
        lines.append(("output", str(output)))
    if directory.record.exists():
        lines.append(("everything", str(directory.path)))
    if result.status != "succeeded" and result.final_checkpoint:
        lines.append(("to go on", shlex.join(["hostcore", "resume", name_of(directory)])))
    return lines


def shown_path(text: str) -> str:
    """Return a path as the user would type it."""
    try:
        return str(Path(text).relative_to(Path.cwd())) if text.startswith("/") else text
    except ValueError:
        return text
