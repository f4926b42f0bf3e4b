"""Shell completion of the arguments of commands: runs, plugins, kinds, profiles. No plugin is imported for it.

A shell inserts a choice as it is, so a name that no run or plugin can have is not offered. A wrong line has no choices;
its errors are reported when it is run.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from click import Context, Parameter
from click.shell_completion import CompletionItem

from hostcore_hookspecs.errors import HostcoreError

Complete = Callable[[Context, Parameter, str], list[CompletionItem]]

_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def runs(ctx: Context, _parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete runs of the folder, newest first, or a path; runs of a service are not requested."""
    from hostcore.runs.directory import RunDirectory, runs_dir

    if "/" in incomplete:
        return [CompletionItem(incomplete, type="dir")]
    if ctx.params.get("server"):
        return []
    try:
        with os.scandir(ctx.params.get("runs") or runs_dir()) as entries:
            begun = [entry for entry in entries if entry.name.startswith(incomplete) and _SAFE.fullmatch(entry.name)]
        found = [entry for entry in begun if RunDirectory(Path(entry.path)).record.is_file()]
        newest = sorted(found, key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
    except OSError:
        return []
    return [CompletionItem(entry.name) for entry in newest]


def runs_or_files(ctx: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete runs of the folder, or files if no run matches."""
    found = [] if "/" in incomplete else runs(ctx, parameter, incomplete)
    return found or files(ctx, parameter, incomplete)


def files(_ctx: Context, _parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete files, as the shell does."""
    return [CompletionItem(incomplete, type="file")]


def plugins(*of_kinds: str) -> Complete:
    """Return a completion of installed plugins, with their distributions.

    :param of_kinds: Of these kinds alone; of all if not given.
    """

    def complete(_ctx: Context, _parameter: Parameter, incomplete: str) -> list[CompletionItem]:
        from hostcore.plugins.installed import discover

        origins: dict[str, list[str]] = {}
        for ref in discover().refs:
            if (not of_kinds or ref.kind in of_kinds) and ref.name.startswith(incomplete) and _SAFE.fullmatch(ref.name):
                origins.setdefault(ref.name, []).append(f"{ref.dist} {ref.version}")
        told = {name: ", ".join(dict.fromkeys(found)) for name, found in origins.items()}
        return [CompletionItem(name, help=_printable(told[name])) for name in sorted(told)]

    return complete


def distributions(_ctx: Context, _parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete installed distributions with plugins."""
    from hostcore.plugins.installed import discover

    found = {ref.dist: ref.version or "" for ref in discover().refs if ref.dist}
    begun = sorted(name for name in found if name.startswith(incomplete) and _SAFE.fullmatch(name))
    return [CompletionItem(name, help=_printable(found[name])) for name in begun]


def kinds(_ctx: Context, _parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete kinds of plugins, as commands name them."""
    from hostcore_hookspecs.kinds import KINDS

    names = [name.replace("_", "-") for name in KINDS]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def profiles(ctx: Context, _parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete profiles of the job file in the line and of its includes."""
    from hostcore.job.files import read_job

    # The option to complete has no value yet, so click has left the argument before it where it was.
    file = ctx.params.get("job") or ctx.params.get("config") or next(iter(ctx.args), None)
    try:
        names = read_job(Path(file)).profiles if file else {}
    except HostcoreError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and _SAFE.fullmatch(name)]


def _printable(text: str) -> str | None:
    return text if text.isprintable() else None
