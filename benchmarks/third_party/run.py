"""Train with packages of others, kill the runs, and compare: ``table.md``, for the documentation.

For each folder beside this file: an environment with the package and hostcore, a run that is left alone, and a run that
is killed three times with SIGKILL. Needs a network.
"""

import argparse
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
HEAD: Final = "| package | module | losses of a run that was killed 3 times | `hostcore verify` |\n|---|---|---|---|\n"


def main() -> int:
    """Run what was asked for; 1 if a loss differs, or a run fails."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("names", nargs="*", help="folders; all without one, and the table is written")
    given = ask.parse_args()
    names = given.names or sorted(path.parent.name for path in HERE.glob("*/job.json"))
    rows, failed = [], False
    for name in names:
        with tempfile.TemporaryDirectory(prefix="third-party-") as folder:
            row, is_exact = _tried(name, Path(folder))
        print(row, end="", flush=True)
        rows.append(row)
        failed = failed or not is_exact
    if not given.names and not failed:
        TABLE.write_text("<!-- Written by `make third-party`. -->\n\n" + HEAD + "".join(rows))
    return int(failed)


def _tried(name: str, folder: Path) -> tuple[str, bool]:
    """Return the row of a package, and whether all of it is as it should be."""
    python = _environment(folder / "venv", name)
    for path in (HERE / name).iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    command = [python.parent / "hostcore", "run", "job.json", "--quiet"]
    chaos = [f"--chaos=kill@step={step}" for step in KILLS]
    _run([*command, "--set", "run_id=whole"], folder)
    for _ in KILLS:
        _run([*command, "--set", "run_id=killed", *chaos], folder, code=1)
    _run([*command, "--set", "run_id=killed", *chaos], folder)
    whole, killed = _losses(folder / "runs/whole"), _losses(folder / "runs/killed")
    differing = sum(killed.get(step) != losses for step, losses in whole.items())
    verified = subprocess.run([command[0], "verify", "killed"], cwd=folder, check=False, capture_output=True, text=True)
    module = json.loads((folder / "job.json").read_text())["hyperparams"]["module"]
    found = "the same, bit for bit" if not differing else f"{differing} of {len(whole)} differ"
    judged = "green" if verified.returncode == 0 else verified.stdout.splitlines()[-1]
    return (
        f"| {name} {_version(python, name)} | `{module}` | {found} | {judged} |\n",
        not differing and judged == "green",
    )


def _environment(place: Path, name: str) -> Path:
    """Make an environment with a package and hostcore; its Python."""
    uv, python = [sys.executable, "-m", "uv"], place / "bin/python"
    _run([*uv, "venv", "--quiet", "--no-project", "--python", sys.executable, place], ROOT)
    torch = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    (place / "constraints.txt").write_text(f"{torch}\n")
    install = [*uv, "pip", "install", "--quiet", "--python", python, "-c", place / "constraints.txt"]
    _run([*install, name, *(one for path in OWN for one in ("-e", ROOT / path))], ROOT)
    return python


def _run(command: Sequence[Any], folder: Path, *, code: int = 0) -> None:
    done = subprocess.run(
        command, cwd=folder, check=False, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    if done.returncode != code:
        sys.exit(f"{' '.join(map(str, command))} exited {done.returncode}:\n{done.stdout}{done.stderr}")


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
