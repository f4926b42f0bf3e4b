"""How a run ended, or was sent on its way, as commands tell it."""

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from hostcore.checkpoints.names import step_of_folder
from hostcore.cli.output import echo, print_json, style, warn
from hostcore.cli.wording import best_of, by_phase, figure, lasting, named_values, warnings_of
from hostcore.runs.directory import RunDirectory, runs_dir
from hostcore.runs.result import RunResult
from hostcore.secrets.scrub import scrub
from hostcore_hookspecs.errors import RunError

_COLORS = {"succeeded": "green", "failed": "red"}


def report_result(result: RunResult, directory: RunDirectory, *, as_json: bool, note: str = "") -> None:
    """Say how a run ended: an error on standard error, the summary on standard output.

    :param note: A few words behind its name.
    """
    for one in result.left:
        warn(one.message)
        if one.command:
            command = shlex.join([*one.command[:2], name_of(directory), *one.command[2:]])
            echo(f"    hint: {command}", err=True)
    print_result(result, lambda: places_in(directory, result), as_json=as_json, note=note)


def print_result(
    result: RunResult, places: Callable[[], Sequence[tuple[str, str]]], *, as_json: bool, note: str = ""
) -> None:
    """Say how a run ended, wherever it ran.

    :param places: The lines that say where to find what it has left, and how to go on.
    :param note: A few words behind its name.
    """
    if as_json:
        print_json(result.as_dict())
        return
    if result.error:
        _print_error(result)
    echo(f"{in_color(result.status)}  {result.run_id}{f'  ({note})' if note else ''}")
    print_lines([*_facts(result), *places()])


def print_submission(run_id: str, name: Sequence[str], place: str) -> None:
    """Say that a run was submitted, wherever it will run.

    :param name: The words that commands call it by.
    :param place: Where to find everything.
    """
    echo(f"{in_color('submitted')}  {run_id}")
    commands = (["logs", "-f"], ["status"], ["cancel"])
    print_lines([*((words[0], shlex.join(["hostcore", *words, *name])) for words in commands), ("everything", place)])


def in_color(status: str) -> str:
    """A status as it heads a report."""
    return style(status, fg=_COLORS.get(status, "yellow"), bold=True)


def print_lines(lines: Sequence[tuple[str, str]]) -> None:
    """Print names and values below a head."""
    for line in named_values([(name, shown_path(value)) for name, value in lines]):
        echo(scrub(line))


def name_of(directory: RunDirectory) -> str:
    """What to call a run on the command line: its run_id, or its path if it is not where runs are looked for."""
    if directory.path.parent == runs_dir():
        return directory.run_id
    path = shown_path(str(directory.path))
    return path if "/" in path else f"./{path}"  # without a slash it would be an id


def _print_error(result: RunResult) -> None:
    error = result.error
    assert error is not None
    if error.traceback:
        echo(scrub(error.traceback.rstrip("\n")), err=True)
    echo(f"{style('error:', fg='red', bold=True)} {scrub(in_words(error))}", err=True)
    if error.hint:
        echo(f"    hint: {scrub(error.hint)}", err=True)


def in_words(error: RunError) -> str:
    """Why a run has failed, through which plugin and on which rank."""
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
    """The steps that no checkpoint holds, if there are any."""
    newest = step_of_folder(PurePosixPath(result.final_checkpoint).name) if result.final_checkpoint else None
    if result.step <= (newest or 0):
        return []
    if newest is None:
        return [("not saved", 'all steps; "checkpoint_every" says how often to write a checkpoint')]
    return [("not saved", f"{result.step - newest:,} of these steps, since the checkpoint of step {newest:,}")]


def places_in(directory: RunDirectory, result: RunResult) -> list[tuple[str, str]]:
    """Where to find what a run has left, and how to go on with it."""
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
    """A path as the user would type it."""
    try:
        return str(Path(text).relative_to(Path.cwd())) if text.startswith("/") else text
    except ValueError:
        return text
