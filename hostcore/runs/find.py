"""Finding the run that an argument names: by its run_id, by the beginning of it, or by its directory."""

import difflib
import os
from collections.abc import Sequence
from pathlib import Path

from hostcore.runs.directory import RunDirectory
from hostcore.runs.summary import UnknownRun
from hostcore_hookspecs.errors import HostcoreError

_MOST_NAMED = 8
_LIST = "`hostcore list` shows the runs there are; HOSTCORE_RUNS_DIR or --runs-dir says where they are looked for"


class AmbiguousRun(HostcoreError):
    """Several runs begin like this."""

    code = "run.ambiguous"


def find_run(name: str, runs: Path) -> RunDirectory:
    """Return the directory of the run that a name means.

    :param name: A run_id, which wins; or the beginning of exactly one; or the path of a run directory.
    :param runs: The folder of all runs; may be missing.
    :raises UnknownRun: When there is none; the hint has the nearest name.
    :raises AmbiguousRun: When several begin so.
    """
    if "/" in name or name in ("", ".", ".."):
        path = Path(os.path.abspath(name))  # noqa: PTH100 - without "..", and with the name of a link as it is
        if name and _is_run(path):
            return RunDirectory(path)
        raise UnknownRun(f"{name!r} is neither a run id nor a run directory", hint=_LIST)
    if _is_run(runs / name):
        return RunDirectory(runs / name)
    run_ids = sorted(path.name for path in runs.iterdir() if _is_run(path)) if runs.is_dir() else []
    matches = [run_id for run_id in run_ids if run_id.startswith(name)]
    if len(matches) > 1:
        raise AmbiguousRun(ambiguous(name, matches), file=str(runs), hint="give more of the run id")
    if not matches:
        near = difflib.get_close_matches(name, run_ids, n=1)
        raise UnknownRun(
            f"there is no run {name!r} in {runs}",
            file=str(runs / name),
            hint=f"did you mean {near[0]!r}? {_LIST}" if near else _LIST,
        )
    return RunDirectory(runs / matches[0])


def ambiguous(name: str, matches: Sequence[str]) -> str:
    """Return the message about a name that several runs begin with."""
    shown = ", ".join(matches[:_MOST_NAMED]) + (", …" if len(matches) > _MOST_NAMED else "")
    return f"{len(matches)} runs begin with {name!r}: {shown}"


def _is_run(path: Path) -> bool:
    return RunDirectory(path).record.is_file()
