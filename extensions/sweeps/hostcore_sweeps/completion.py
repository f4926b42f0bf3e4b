"""Shell completion of the argument SWEEP of commands."""

import re
from typing import Final

import click
from click.shell_completion import CompletionItem

#: What a shell may put into a line as it is: the names that a sweep may have.
_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def sweeps(_ctx: click.Context, _parameter: click.Parameter | None, incomplete: str) -> list[CompletionItem]:
    """The sweeps of the folder of all sweeps; files, where none begins so."""
    from hostcore_sweeps.folder import sweeps_dir

    names = (one.parent.name for one in sweeps_dir().glob("*/sweep.json"))
    begun = sorted(name for name in names if name.startswith(incomplete) and _SAFE.fullmatch(name))
    return [CompletionItem(name) for name in begun] or [CompletionItem(incomplete, type="file")]


sweep_argument = click.argument("sweep", metavar="SWEEP", shell_complete=sweeps)
