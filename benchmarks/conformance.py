"""How long the conformance kit takes, check by check, and as a whole beside its model.

The kit is asked through its command, in the process of its own that it starts, as CI would: the time includes the start
of two interpreters and ``import torch``, which is measured alone beside it. Processor time is that of all processes
that the command has started. The peer is scikit-learn's ``check_estimator``, the only kit of its kind, with
an estimator of its own (``LogisticRegression``) in a fresh interpreter. The two ask different things of different
plugins; the figures only tell whether one is as bearable in CI as the other.

    python benchmarks/conformance.py [--plugin digits] [--kind trainer] [--project example_trainers/digits] [--rounds 3]
                                     [--beside FOLDER] [--json FILE]

``--beside`` names a folder with another ``hostcore_conformance``, as ``extensions/conformance`` of another commit: it
is asked in each round, too, in every second one first.
"""

import argparse
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import results

_PEER = """
import warnings; warnings.simplefilter("ignore")
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator
print(len(check_estimator(LogisticRegression(), on_fail=None)))
"""
#: Of ``prctl``: orphans of processes that this one has started become its own children, so that their times are known.
_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", default="digits")
    parser.add_argument("--kind", default="trainer")
    parser.add_argument("--project", type=Path, default=Path("example_trainers/digits"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, metavar="FOLDER")
    results.add_option(parser)
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    seconds: dict[str, list[float]] = {}
    reports = []
    kits = {"hostcore check": None} | ({"the other hostcore check": options.beside} if options.beside else {})
    for number in range(options.rounds):
        for name, kit in sorted(kits.items(), reverse=number % 2 == 1):
            report = _check(name, seconds, options, kit)
            if kit is None:
                reports.append(report)
        _measured("import torch", seconds, [sys.executable, "-c", "import torch"])
        peer_checks = int(_measured("check_estimator", seconds, [sys.executable, "-c", _PEER]).split()[-1])
    results.write(options.json, "conformance", results.rows("s", seconds), plugin=options.plugin, kind=options.kind)
    by_check = {
        result["id"]: statistics.median(other["results"][place]["seconds"] for other in reports)
        for place, result in enumerate(reports[0]["results"])
    }
    for name, median in sorted(by_check.items(), key=lambda one: -one[1]):
        print(f"{median:8.2f} s  {name}")
    counts = ", ".join(f"{number} {status}" for status, number in reports[0]["summary"].items() if number)
    print(f"\n{options.plugin}: {len(by_check)} checks, {counts}; the estimator: {peer_checks}")
    for name, values in seconds.items():
        print(f"{name}: {_spread(values)}")


def _check(
    name: str, seconds: dict[str, list[float]], options: argparse.Namespace, kit: Path | None = None
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        command = [sys.executable, "-m", "hostcore", "check", options.plugin, "--kind", options.kind]
        _measured(name, seconds, [*command, "--json", str(file)], cwd=options.project, kit=kit)
        report: dict[str, Any] = json.loads(file.read_bytes())
        return report


def _measured(
    name: str, seconds: dict[str, list[float]], command: list[str], *, cwd: Path | None = None, kit: Path | None = None
) -> str:
    """Run a command, and note its wall time and the processor time of all that it has started: what it prints."""
    environment = dict(os.environ) if kit is None else {**os.environ, "PYTHONPATH": str(kit.absolute())}
    used, started = _processor_seconds(), time.perf_counter()
    done = subprocess.run(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    seconds.setdefault(name, []).append(time.perf_counter() - started)
    with suppress(ChildProcessError):
        while True:
            os.wait()  # for what it has left to this process
    seconds.setdefault(f"{name}, processor time", []).append(_processor_seconds() - used)
    return done.stdout


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _spread(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.1f} s ({min(seconds):.1f}..{max(seconds):.1f})"


if __name__ == "__main__":
    main()
