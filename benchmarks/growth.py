"""How time and memory grow with what there is: events, runs, shards, checkpoints, ranks, jobs.

    python benchmarks/growth.py [--rounds 3] [--most 1000000] [--only "hostcore list,open shards"] [--json FILE]
                                [--plot docs/_static/growth.svg] [--read FILE]

With ``--read``, what was measured before is taken in: alone, the table and the picture are made again from it.

Every subject (``growth_subjects.py``) is measured for a series of sizes, each ten times the one before, in processes of
its own: CPU time (user and system), wall time, the peak of memory over what there was before, bytes read and calls of
``read`` and ``write``, as the kernel counts them. The exponent of growth is the slope of the logarithms of CPU time
between the two largest sizes: 1 is linear, 0 does not grow, 2 takes a hundred times as long for ten times as much. More
than 1.15 is called ``worse than linear``; sorting, and caches that are too small, take a little more than 1.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import results
from growth_subjects import SUBJECTS, TRAINED, Subject

#: An exponent that is called linear.
MOST = 1.15
#: Less CPU time than this is not told from noise, in seconds.
LEAST_SECONDS = 0.02

#: What was measured: by subject and size, the rounds.
Found = dict[str, dict[int, list[dict[str, float]]]]


def child(what: str, name: str, size: int, folder: Path) -> str:
    """What a process of its own prints.

    :raises SystemExit: With what it wrote, when it failed.
    """
    command = [sys.executable, str(Path(__file__).with_name("growth_subjects.py")), what, name, str(size), str(folder)]
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}, {size}: failed\n{done.stderr[-4000:]}")
    return done.stdout


def measure(name: str, subject: Subject, *, most: int, rounds: int) -> dict[int, list[dict[str, float]]]:
    """The rounds of each size."""
    found: dict[int, list[dict[str, float]]] = {}
    for size in (size for size in subject.sizes if size <= most):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place, "0")
            child("prepare", name, size, folder)
            found[size] = []
            for number in range(rounds):
                if number and not subject.again:
                    folder = Path(place, str(number))
                    child("prepare", name, size, folder)
                found[size].append(json.loads(child("measure", name, size, folder).splitlines()[-1]))
        cpu = [one["cpu"] for one in found[size]]
        print(f"{name}, {size:,} {subject.of}: {statistics.median(cpu):.3f} s of CPU time", file=sys.stderr)
    return found


def median(rounds: list[dict[str, float]], key: str) -> float:
    return statistics.median(one[key] for one in rounds)


def exponent(found: dict[int, list[dict[str, float]]], key: str, *, least: float) -> float | None:
    """The slope between the two largest sizes; None if the largest is below what can be told."""
    *_, small, large = sorted(found)
    low, high = median(found[small], key), median(found[large], key)
    if high < least:
        return None
    return math.log(high / max(low, least / 10)) / math.log(large / small)


def table(found: Found) -> str:
    lines = [
        "| subject | of | CPU s | min..max | exponent | memory MB | exponent | bytes read | reads and writes | |",
        "|" + "---|" * 10,
    ]
    for name, by_size in found.items():
        largest = max(by_size)
        rounds = by_size[largest]
        cpu = [one["cpu"] for one in rounds]
        slope, memory = exponent(by_size, "cpu", least=LEAST_SECONDS), exponent(by_size, "memory", least=5e6)
        worse = any(one is not None and one > MOST for one in (slope, memory))
        cells = [
            f"{name} | {largest:,} {SUBJECTS[name].of} | {statistics.median(cpu):.3f} | {min(cpu):.3f}..{max(cpu):.3f}",
            f"{shown(slope)} | {median(rounds, 'memory') / 1e6:.0f} | {shown(memory)}",
            f"{median(rounds, 'bytes_read'):,.0f} | {median(rounds, 'calls'):,.0f}",
            "**worse than linear**" if worse else "linear or better",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def shown(slope: float | None) -> str:
    return "-" if slope is None else f"{slope:.2f}"


def rows_of(found: Found) -> dict[str, results.Row]:
    """What is written with ``--json``."""
    units = {"cpu": "s", "wall": "s", "memory": "bytes", "bytes_read": "bytes", "calls": "calls"}
    return {
        f"{name}, {size} {SUBJECTS[name].of}, {key}": results.Row(values=[one[key] for one in rounds], unit=unit)
        for name, by_size in found.items()
        for size, rounds in by_size.items()
        for key, unit in units.items()
    }


def found_in(file: Path) -> Found:
    """What was written with ``--json``."""
    found: Found = {}
    for row, values in ((name, one.values) for name, one in results.read(file).rows.items()):
        name, size, key = row.rsplit(", ", 2)
        rounds = found.setdefault(name, {}).setdefault(int(size.split()[0]), [{} for _ in values])
        for of_round, value in zip(rounds, values, strict=True):
            of_round[key] = value
    return found


def plot(found: Found, file: Path) -> None:
    """A small picture for each thing that is counted; the grey line is linear."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "growth", "svg.fonttype": "none", "font.family": "sans-serif"}
    from matplotlib import pyplot as plt

    kinds = list(dict.fromkeys(SUBJECTS[name].of for name in found))
    columns = min(3, len(kinds))
    figure, axes = plt.subplots(
        -(-len(kinds) // columns), columns, figsize=(4.3 * columns, 3.6 * -(-len(kinds) // columns)), squeeze=False
    )
    for axis in axes.flat[len(kinds) :]:
        axis.set_axis_off()
    for axis, kind in zip(axes.flat, kinds, strict=False):
        of_kind = {name: by_size for name, by_size in found.items() if SUBJECTS[name].of == kind}
        draw(axis, kind, of_kind)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else {})


def draw(axis: Any, kind: str, found: Found) -> None:
    lowest, highest = math.inf, 0.0
    for name, by_size in found.items():
        sizes = sorted(by_size)
        seconds = [max(median(by_size[size], "cpu"), 1e-4) for size in sizes]
        axis.plot(sizes, seconds, marker="o", markersize=3, linewidth=1.2, label=name)
        lowest, highest = min(lowest, sizes[0]), max(highest, sizes[-1])
    top = max(median(by_size[max(by_size)], "cpu") for by_size in found.values())
    axis.plot(
        [lowest, highest], [top * lowest / highest, top], color="0.6", linestyle="--", linewidth=1, label="linear"
    )
    axis.set(xscale="log", yscale="log", xlabel=kind, ylabel="CPU time, s")
    axis.grid(visible=True, color="0.9")
    axis.legend(fontsize=6, frameon=False)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--rounds", type=int, default=3)
    ask.add_argument("--most", type=int, default=1_000_000, help="no larger size than this")
    ask.add_argument("--only", help="comma separated subjects")
    ask.add_argument("--read", type=Path, metavar="FILE", action="append", help="take in what --json has written")
    ask.add_argument("--plot", type=Path, metavar="FILE", help="draw what was found")
    results.add_option(ask)
    options = ask.parse_args()
    read = {name: by_size for file in options.read or () for name, by_size in found_in(file).items()}
    wanted = options.only.split(",") if options.only else [name for name in SUBJECTS if not options.read]
    if unknown := set(wanted) - SUBJECTS.keys():
        ask.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(SUBJECTS)}")
    with tempfile.TemporaryDirectory() as place:
        os.environ[TRAINED] = str(Path(place, "runs"))
        how = {"most": options.most, "rounds": options.rounds}
        for name in SUBJECTS:
            if name in wanted:
                read[name] = measure(name, SUBJECTS[name], **how)
                results.write(options.json, "growth", rows_of(read))  # now: an interruption costs one subject
    found = {name: read[name] for name in SUBJECTS if name in read}
    if options.plot:
        plot(found, options.plot)
    print(f"{', '.join(f'{key} {value}' for key, value in results.machine().items())}\n")
    print(table(found))


if __name__ == "__main__":
    main()
