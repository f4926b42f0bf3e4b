"""SIGKILL at random steps: what a resumed training has lost, beside the same one under its library's own trainer.

Each way trains the same model on the same shuffled rows as its neighbour, writes a checkpoint every 10 steps, is killed
with all its processes at a random step, and is started again with the command or call that its documentation gives for
resuming, until the last step is done. All ways are killed after the same numbers of steps. The same training without a
kill says what the losses and the rows should have been.

    pip install ./extensions/lightning './extensions/transformers[lora]' accelerate
    python benchmarks/resume_proof.py [--kills 20] [--seed 0] [--rounds 1] [--only lightning,pl.Trainer] [--json FILE]

====================  ===========================================================================================
``lightning``         hostcore's trainer of that name
``pl.Trainer``        ``ModelCheckpoint(every_n_train_steps=10, save_last=True)``, ``fit(ckpt_path="last")``, and
                      ``seed_everything(0, workers=True)``; torch's ``DataLoader``
``transformers``      hostcore's trainer of that name
``hf.Trainer``        ``save_steps=10``, ``save_total_limit=3``, ``train(resume_from_checkpoint=True)``, ``seed=0``
====================  ===========================================================================================

====================  ===========================================================================================
``failed starts``     starts that ended by themselves before the last step: a checkpoint that could not be loaded.
                      The newest is then removed, as one would do by hand, and the training started again
``trained again``     steps that were trained more than once, since no checkpoint had them
``rows skipped``      rows of an epoch that no step of the final line of training has seen
``rows repeated``     rows that it has seen more often than the training without a kill
``other losses``      steps whose loss is not, to the last bit, that of the training without a kill
``seconds lost``      from the first start to the end, over the training without a kill
====================  ===========================================================================================

The final line of training is, for each step, the last time that it was trained.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import results

ROWS, BATCH, EPOCHS, EVERY = 1024, 8, 2, 10
STEPS = ROWS // BATCH * EPOCHS
#: The file that every step appends a line to.
LOG = "RESUME_PROOF_LOG"
COLUMNS = ("failed starts", "trained again", "rows skipped", "rows repeated", "other losses", "seconds lost")
#: The library of each way, and the checkpoints of those that are not hostcore.
WAYS = {
    "lightning": ("resume_lightning", None),
    "pl.Trainer": ("resume_lightning", "checkpoints/*.ckpt"),
    "transformers": ("resume_transformers", None),
    "hf.Trainer": ("resume_transformers", "checkpoints/checkpoint-*"),
}


def note(step: int, rows: Sequence[Sequence[int]], loss: float) -> None:
    """Append what a step has done: one line, one write."""
    known = [zlib.crc32(json.dumps(row).encode()) for row in rows]
    line = json.dumps({"step": step, "rows": known, "loss": loss.hex(), "at": time.time()}) + "\n"
    descriptor = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, line.encode())
    os.close(descriptor)


@attrs.frozen(kw_only=True)
class Trained:
    """A training that has come to its end."""

    #: All steps, in the order in which they were made.
    steps: list[dict[str, Any]]
    failed_starts: int
    seconds: float

    @property
    def final(self) -> dict[int, dict[str, Any]]:
        """The last time that each step was made."""
        return {one["step"]: one for one in self.steps}

    def rows(self, epoch: int) -> "Counter[int]":
        """How often the final line of training has seen each row of an epoch."""
        length = STEPS // EPOCHS
        steps = range(epoch * length + 1, (epoch + 1) * length + 1)
        final = self.final
        return Counter(row for step in steps if step in final for row in final[step]["rows"])


def command(way: str, place: Path) -> list[str]:
    """What starts the training, and what goes on with it."""
    if WAYS[way][1] is None:
        return [sys.executable, "-m", "hostcore", "run", str(place / "job.json")]
    return library(way, "train", place)


def library(way: str, does: str, place: Path) -> list[str]:
    """What calls a function of the way's module."""
    return [sys.executable, str(Path(__file__).parent / f"{WAYS[way][0]}.py"), does, str(place)]


def count(log: Path) -> int:
    """How many steps were trained so far, found without reading what they have done."""
    return log.read_bytes().count(b"\n") if log.exists() else 0


def lines(log: Path) -> list[dict[str, Any]]:
    """The steps that were trained so far, in the order in which they were."""
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_bytes().split(b"\n")[:-1]]


def end(process: "subprocess.Popen[bytes]") -> None:
    """SIGKILL a process and all that it has started, also those with a session of their own."""
    family, found = [process.pid], [process.pid]
    while found:
        found = [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and parent(entry) in found and int(entry.name) not in family
        ]
        family += found
    for pid in family:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def parent(process: Path) -> int:
    """The process that started one of ``/proc``."""
    try:
        return int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError):
        return 0


def remove_newest(way: str, place: Path) -> None:
    """Remove the checkpoint that a way could not load."""
    pattern = WAYS[way][1]
    found = sorted(place.glob(pattern), key=lambda one: (one.stat().st_mtime_ns, one.name)) if pattern else []
    if not found:
        raise SystemExit(f"{way} does not start:\n{(place / 'output.log').read_text()[-4000:]}")
    shutil.rmtree(found[-1]) if found[-1].is_dir() else found[-1].unlink()


def environment(place: Path) -> dict[str, str]:
    """What the processes of a training see."""
    return {
        **os.environ,
        LOG: str(place / "steps.jsonl"),
        "PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "HOSTCORE_RUNS_DIR": str(place / "runs"),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TQDM_DISABLE": "1",
    }


def train(way: str, place: Path, kills: int, dice: random.Random) -> Trained:
    """Train to the last step in a prepared folder, and kill on the way there."""
    log, failed = place / "steps.jsonl", 0
    due = [(dice.randint(1, 2 * STEPS // kills), dice.random()) for _ in range(kills)]
    began = time.monotonic()
    while True:
        before = count(log)
        with (place / "output.log").open("ab") as output:
            process = subprocess.Popen(
                command(way, place), env=environment(place), stdout=output, stderr=output, cwd=place,
                start_new_session=True,  # processors are divided among sessions, and hostcore's worker has its own
            )  # fmt: skip
        while process.poll() is None:
            if due and count(log) >= before + due[0][0]:
                time.sleep(due.pop(0)[1] * step_seconds(log))
                end(process)
                break
            time.sleep(0.01)
        else:
            if process.returncode == 0:
                if due:
                    print(f"{way} ended before {len(due)} of {kills} kills", file=sys.stderr)
                return Trained(steps=lines(log), failed_starts=failed, seconds=time.monotonic() - began)
            failed += 1
            remove_newest(way, place)


def step_seconds(log: Path) -> float:
    """What a step takes at present, so that a kill hits any part of one."""
    done = lines(log)[-10:]
    return float(max(0.0, done[-1]["at"] - done[0]["at"]) / len(done))


def compare(calm: Trained, rough: Trained) -> dict[str, float]:
    """What the kills have cost."""
    skipped = sum((calm.rows(epoch) - rough.rows(epoch)).total() for epoch in range(EPOCHS))
    repeated = sum((rough.rows(epoch) - calm.rows(epoch)).total() for epoch in range(EPOCHS))
    final = rough.final
    figures = (
        rough.failed_starts,
        len(rough.steps) - len(final),
        skipped,
        repeated,
        sum(final.get(step, {}).get("loss") != one["loss"] for step, one in calm.final.items()),
        rough.seconds - calm.seconds,
    )
    return dict(zip(COLUMNS, figures, strict=True))


def measure(way: str, kills: int, seed: int) -> dict[str, float]:
    """Train without a kill, and with kills."""
    with tempfile.TemporaryDirectory() as folder:
        calm, rough = Path(folder) / "calm", Path(folder) / "rough"
        calm.mkdir()
        subprocess.run(library(way, "prepare", calm), env=environment(calm), check=True, stdout=subprocess.DEVNULL)
        shutil.copytree(calm, rough)
        undisturbed = train(way, calm, 0, random.Random(seed))
        if sorted(undisturbed.final) != list(range(1, STEPS + 1)):
            raise SystemExit(f"{way} made other steps than 1 to {STEPS}")
        return compare(undisturbed, train(way, rough, kills, random.Random(seed)))


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(WAYS))
    parser.add_argument("--rounds", type=int, default=1, help="each with the next seed; the figures are sums")
    results.add_option(parser)
    arguments = parser.parse_args()
    ways = arguments.only.split(",")
    table: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for seed in range(arguments.seed, arguments.seed + arguments.rounds):
        for way in ways:
            table[way].append(measure(way, arguments.kills, seed))
            print(f"# seed {seed}, load {os.getloadavg()[0]:.1f}, {way}: {table[way][-1]}", flush=True)
    rows: dict[str, results.Row] = {}
    for way, rounds in table.items():
        for column in COLUMNS:
            unit = "s" if column == "seconds lost" else "count"
            rows |= results.rows(unit, {f"{way}, {column}": [figures[column] for figures in rounds]})
    results.write(arguments.json, "resume_proof", rows, kills=arguments.kills, seed=arguments.seed)
    print(f"{STEPS} steps, {ROWS} rows in each of {EPOCHS} epochs, a checkpoint every {EVERY} steps")
    print(f"| way | kills | {' | '.join(COLUMNS)} |")
    print("|---" * (len(COLUMNS) + 2) + "|")
    for way, rounds in table.items():
        sums = [sum(figures[column] for figures in rounds) for column in COLUMNS]
        print(f"| {way} | {arguments.kills * arguments.rounds} | {' | '.join(f'{one:.0f}' for one in sums)} |")


if __name__ == "__main__":
    main()
