"""hostcore on a GPU, beside plain PyTorch in the same process: a table and a JSON file, written anew after each row.

Rows that matter most come first, so that a benchmark cut off is worth something. All of it takes at most ``--minutes``
on one card of 80 GB: each row has a limit of its own, and those for which no time is left are named as skipped.
``--device cpu --quick`` tries the whole benchmark with small sizes in two minutes; what only a GPU can show is empty
then, and its note says so. Everything but ``start`` is measured inside of a ``hostcore run`` by the trainers in
``gpu_ways.py``: stretches of its loop and of a plain loop take turns, and medians of the rounds are printed.

    python benchmarks/gpu.py [--device cuda] [--quick] [--minutes 8] [--only "feed"] [--json FILE]

The table goes to standard output, and beside FILE with the ending ``.md``.

==============  ======================================================================================================
``step …``      a step of the model of ``char_lm`` on random bytes, small or of 350 M parameters, with default reporters
                and callbacks (``grad-clip``, ``nonfinite-guard``, ``lr-monitor``, ``throughput``). The plain loop does
                the same arithmetic, calls ``clip_grad_norm_`` at every step and reads its loss at every tenth.
                ``reads`` and ``waits``: of 9 steps between two cadence steps, less those of 9 steps of the plain loop;
                ``warned``: what ``torch.cuda.set_sync_debug_mode`` counts in 9 more, whose places are notes
``checkpoint``  the 350 M parameters and their AdamW in fp32, 4.2 GB; beside ``torch.save`` with fsync and
                ``torch.distributed.checkpoint.async_save``. ``stall``: until the loop goes on; ``done``: until it is
                committed and on the disk; ``memory``: of the device, at its peak, over what it had before
``feed, …``     rows a second from Parquet to the device by ``to_tensors``, beside ``iter_batches`` and pinned copies
                that do not block; ``overlap``: the share of the copies' time in which a product of matrices ran
``start``       from ``hostcore run`` to the end of step 1, beside a process that imports torch and uses the device
==============  ======================================================================================================

Exit status: 0; 1 if a row failed.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import results
from gpu_subjects import FULL, QUICK, SUBJECTS, Bench, Found
from results import Row

#: For all rows; their own limits are for that, and grow and shrink with ``--minutes``.
MINUTES = 8.0
#: Fewer seconds are not worth a start.
LEAST = 20.0
ONLY_ON_A_GPU = "only a GPU can show it"
HEAD = "| row | median | min..max | unit | goal | |\n|---|---|---|---|---|---|"


def measure(name: str, bench: Bench, left: float) -> Found:
    """Return the findings of a subject, as far as there is time."""
    if left < LEAST:
        return Found(notes=[f"skipped: {max(0.0, left):.0f} s were left"])
    subject = SUBJECTS[name]
    return subject.measure(subject, bench, min(left, subject.limit * bench.patience))


def rows_of(name: str, bench: Bench, found: Found) -> Iterator[tuple[str, Row]]:
    """The rows of a subject, measured or not."""
    for key, figure in SUBJECTS[name].figures.items():
        values = found.values.get(key) or None
        if values is None and figure.on_gpu and bench.device == "cpu":
            note = ONLY_ON_A_GPU
        else:
            note = "; ".join(found.notes) or ("" if values else "not measured")
        yield (
            f"{name}: {key}",
            Row(values=values, unit=figure.unit, less_is_better=figure.less_is_better, note=note),
        )


def line(name: str, row: Row) -> str:
    """A row of the table."""
    subject, _, key = name.partition(": ")
    goal = SUBJECTS[subject].figures[key].goal
    if row.values is None:
        return f"| {name} | - | | {row.unit} | {goal} | {row.note} |"
    median, low, high = (f"{value:.4g}" for value in (statistics.median(row.values), min(row.values), max(row.values)))
    return f"| {name} | {median} | {low}..{high} | {row.unit} | {goal} | {row.note} |"


def name_of(device: str) -> str:
    """The name of the card.

    :raises SystemExit: When it cannot be used.
    """
    if device == "cpu":
        return device
    code = f"import torch; torch.ones(1, device={device!r}); print(torch.cuda.get_device_name({device!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{device}: {done.stderr.strip().splitlines()[-1]}; --device cpu --quick tries the benchmark")
    return done.stdout.strip()


def main() -> int:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--device", default="cuda")
    ask.add_argument("--quick", action="store_true", help="small sizes, to try it")
    ask.add_argument("--minutes", type=float, default=MINUTES, help="for all of it")
    ask.add_argument("--only", action="append", help="rows that begin so; may be repeated")
    results.add_option(ask)
    options = ask.parse_args()
    until = time.monotonic() + 60 * options.minutes
    for only in options.only or ():
        if not any(name.startswith(only) for name in SUBJECTS):
            ask.error(f"no row begins with {only!r}; there are {', '.join(map(repr, SUBJECTS))}")
    names = [name for name in SUBJECTS if name.startswith(tuple(options.only or ("",)))]
    sizes = QUICK if options.quick else FULL
    settings = {"device": name_of(options.device), "sizes": attrs.asdict(sizes)}
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        patience = options.minutes / MINUTES
        bench = Bench(device=options.device, sizes=sizes, folder=Path(folder), patience=patience)
        rows = dict(row for name in names for row in rows_of(name, bench, Found(notes=["not reached"])))
        print(f"{settings['device']}\n\n{HEAD}", flush=True)
        for name in names:
            found = measure(name, bench, until - time.monotonic())
            failed = failed or found.failed
            new = dict(rows_of(name, bench, found))
            rows |= new
            print("\n".join(line(*row) for row in new.items()), flush=True)
            results.write(options.json, "gpu", rows, **settings)
            if options.json is not None:
                table = [settings["device"], "", HEAD, *(line(*row) for row in rows.items())]
                results.replace(options.json.with_suffix(".md"), "\n".join(table) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
