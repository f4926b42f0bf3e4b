"""Train with packages of others, kill the runs, and compare: ``table.md``, for the documentation.

For each folder beside this file: an environment with the package and hostcore, a run that is left alone, a run that is
killed three times with SIGKILL, and the same training with ``pl.Trainer``. Needs a network.
"""

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
TABLE: Final = HERE / "table.md"
OWN: Final = ("hookspecs", "toolkit", "builtin_plugins", ".", "extensions/chaos", "extensions/lightning")
KILLS: Final = (8, 21, 38)
HEAD: Final = (
    "| package | what is trained | losses of a run killed 3 times | `hostcore verify` | beside `pl.Trainer` |\n"
    "|---|---|---|---|---|\n"
)


def main() -> int:
    """Run what was asked for; 1 if a loss differs, or a run fails."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("names", nargs="*", help="folders; all without one")
    ask.add_argument("--environments", type=Path, help="folder that keeps the environments, for the next time")
    given = ask.parse_args()
    failed = False
    for name in given.names or sorted(path.parent.name for path in HERE.glob("*/job.json")):
        with tempfile.TemporaryDirectory(prefix="third-party-") as folder:
            try:
                row = _tried(name, Path(folder), (given.environments or Path(folder, "environments")).resolve() / name)
            except RuntimeError as error:
                row, failed = "", True
                sys.stderr.write(f"{name}: {error}\n")
        sys.stdout.write(row)
        sys.stdout.flush()
        _keep(name, row)
    return int(failed)


def _keep(name: str, row: str) -> None:
    """Write the row of a package into the table, in place of that of the last time; empty: it has none any more."""
    lines = [one for one in TABLE.read_text().splitlines(keepends=True) if one.startswith("| ")][1:]
    rows = {one.split()[1]: one for one in lines} | {name: row}
    TABLE.write_text("<!-- Written by `make third-party`. -->\n\n" + HEAD + "".join(rows[one] for one in sorted(rows)))


def _tried(name: str, folder: Path, place: Path) -> str:
    """Return the row of a package.

    :param place: Of its environment.
    :raises RuntimeError: A command failed, a loss differs, or ``verify`` found something.
    """
    python = _environment(place, name)
    for path in (*(HERE / name).iterdir(), HERE / "caught.py", HERE / "theirs.py"):
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    command = [python.parent / "hostcore", "run", "job.json", "--quiet"]
    chaos = [f"--chaos=kill@step={step}" for step in KILLS]
    _run([*command, "--set", "run_id=whole"], folder)
    for _ in KILLS:
        _run([*command, "--set", "run_id=killed", *chaos], folder, code=1)
    _run([*command, "--set", "run_id=killed", *chaos], folder)
    whole, killed = _losses(folder / "runs/whole"), _losses(folder / "runs/killed")
    if not all(whole.values()):
        raise RuntimeError("no loss is recorded at some steps")
    if differing := [step for step, losses in whole.items() if killed.get(step) != losses]:
        raise RuntimeError(f"{len(differing)} of {len(whole)} losses differ, the first at step {differing[0]}")
    _run([command[0], "verify", "killed"], folder)
    what, version = _described(HERE / name), _version(python, name)
    return f"| {name} {version} | {what} | the same, bit for bit | green | {_beside(python, folder, whole)} |\n"


def _beside(python: Path, folder: Path, whole: Mapping[int, Mapping[str, float]]) -> str:
    """Return how many losses are those of the same training with ``pl.Trainer``."""
    theirs = json.loads(_run([python, "theirs.py"], folder).splitlines()[-1])
    losses = theirs["losses"]
    if theirs["is_drawn"]:
        return "not compared: the order is drawn"
    if not losses:
        return "not compared: no loss is returned"
    return f"{sum(loss in whole[step].values() for step, loss in enumerate(losses, 1))} of {len(losses)} the same"


def _described(folder: Path) -> str:
    """Return what is trained: of ``glue.py``, the first line; without one, the job's module."""
    glue = folder / "glue.py"
    if glue.exists():
        return str(ast.get_docstring(ast.parse(glue.read_text()))).splitlines()[0].removesuffix(".")
    return f"`{json.loads((folder / 'job.json').read_text())['hyperparams']['module']}`"


def _environment(place: Path, name: str) -> Path:
    """Make an environment with a package and hostcore; its Python."""
    uv, python = [sys.executable, "-m", "uv"], place / "bin/python"
    if (place / "bin/hostcore").exists():
        return python
    _run([*uv, "venv", "--quiet", "--clear", "--no-project", "--python", sys.executable, place], ROOT)
    torch = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    (place / "constraints.txt").write_text(f"{torch}\n")
    install = [*uv, "pip", "install", "--quiet", "--python", python, "-c", place / "constraints.txt"]
    more = HERE / name / "requirements.txt"  # what the package needs and does not name
    named = more.read_text().split() if more.exists() else []
    _run([*install, name, *named, *(one for path in OWN for one in ("-e", ROOT / path))], ROOT)
    return python


def _run(command: Sequence[Any], folder: Path, *, code: int = 0) -> str:
    done = subprocess.run(
        command, cwd=folder, check=False, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    if done.returncode != code:
        raise RuntimeError(f"{' '.join(map(str, command))} exited {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _losses(run: Path) -> Mapping[int, Mapping[str, float]]:
    events = map(json.loads, (run / "logs/events.jsonl").read_text().splitlines())
    return {
        one["step"]: {name: value for name, value in one["metrics"].items() if "loss" in name}
        for one in events
        if one["event"] == "metrics"
    }


def _version(python: Path, name: str) -> str:
    code = f"from importlib.metadata import version; print(version({name!r}))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
