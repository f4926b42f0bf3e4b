"""The option ``--runs-dir``: the folder of all runs, for one command."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from hostcore.runs.directory import RUNS_DIR_VARIABLE, runs_dir

F = TypeVar("F", bound=Callable[..., Any])


def runs_dir_option(command: F) -> F:
    """Give a command the folder of all runs as ``runs``: the one that it was told, or the usual one; absolute."""

    @functools.wraps(command)
    def with_folder(*args: Any, runs: Path | None, **kwargs: Any) -> Any:
        if runs and kwargs.get("server"):
            raise click.UsageError("--runs-dir and --server exclude each other: a service has a folder of its own")
        return command(*args, runs=runs.absolute() if runs else runs_dir(), **kwargs)

    option = click.option(
        "--runs-dir",
        "--log-dir",
        "runs",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help=f"The folder that the run directories are in; {RUNS_DIR_VARIABLE}, or ./runs, if not given.",
    )
    return cast(F, option(with_folder))
