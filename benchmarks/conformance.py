"""How long the conformance kit takes, check by check, and as a whole beside its model.

The kit is asked through its command, in the process of its own that it starts, as CI would: the time includes the start
of two interpreters and ``import torch``. The peer is scikit-learn's ``check_estimator``, the only kit of its kind, with
an estimator of its own (``LogisticRegression``) in a fresh interpreter. The two ask different things of different
plugins; the figures only tell whether one is as bearable in CI as the other.

    python benchmarks/conformance.py [--plugin digits] [--kind trainer] [--project example_trainers/digits] [--rounds 3]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_PEER = """
import warnings; warnings.simplefilter("ignore")
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator
print(len(check_estimator(LogisticRegression(), on_fail=None)))
"""


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", default="digits")
    parser.add_argument("--kind", default="trainer")
    parser.add_argument("--project", type=Path, default=Path("example_trainers/digits"))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    whole, peer, reports = [], [], []
    for _ in range(options.rounds):
        seconds, report = _check(options.plugin, options.kind, options.project)
        whole.append(seconds)
        reports.append(report)
        seconds, peer_checks = _peer()
        peer.append(seconds)
    by_check = {
        result["id"]: statistics.median(other["results"][place]["seconds"] for other in reports)
        for place, result in enumerate(reports[0]["results"])
    }
    for name, seconds in sorted(by_check.items(), key=lambda one: -one[1]):
        print(f"{seconds:8.2f} s  {name}")
    counts = ", ".join(f"{number} {status}" for status, number in reports[0]["summary"].items() if number)
    print(f"\nhostcore check {options.plugin}: {_spread(whole)} ({len(by_check)} checks: {counts})")
    print(f"sklearn check_estimator: {_spread(peer)} ({peer_checks} checks)")


def _check(plugin: str, kind: str, project: Path) -> tuple[float, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        command = [sys.executable, "-m", "hostcore", "check", plugin, "--kind", kind, "--json", str(file)]
        started = time.perf_counter()
        subprocess.run(command, cwd=project, check=False, stdout=subprocess.DEVNULL)
        return time.perf_counter() - started, json.loads(file.read_bytes())


def _peer() -> tuple[float, int]:
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", _PEER], capture_output=True, text=True, check=True)
    return time.perf_counter() - started, int(done.stdout.split()[-1])


def _spread(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.1f} s ({min(seconds):.1f}..{max(seconds):.1f})"


if __name__ == "__main__":
    main()
