"""SIGKILL at random steps: what a resumed run has lost, beside a peer that trains the same model on the same rows.

Each way trains a perceptron with dropout on shuffled rows, writes a checkpoint every 20 steps, is killed with all its
processes at a random step, and is started again with the command or call that its documentation gives for resuming,
until the last step is done. The same training without a kill says what the losses and the rows should have been.

    pip install lightning
    python benchmarks/kills.py [--kills 20] [--seed 0] [--rounds 1] [--only hostcore,lightning] [--json FILE]

====================  ===========================================================================================
``failed starts``     starts that ended by themselves before the last step: a checkpoint that could not be loaded
``trained again``     steps that were trained more than once, since no checkpoint had them
``rows skipped``      rows of an epoch that no step of the final line of training has seen
``rows repeated``     rows that it has seen more than once in an epoch
``other losses``      steps whose loss is not, to the last bit, that of the training without a kill
====================  ===========================================================================================

The final line of training is, for each step, the last time that it was trained.
"""

import argparse
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import results

ROWS, BATCH, EPOCHS, EVERY = 4096, 16, 2, 20
STEPS = ROWS // BATCH * EPOCHS
#: The file that every step appends a line to.
LOG = "KILLS_LOG"
COLUMNS = ("kills", "failed starts", "trained again", "rows skipped", "rows repeated", "other losses")


def model() -> Any:
    """What is trained: dropout makes it depend on the random state, as most models do."""
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 1))


def loss_of(network: Any, numbers: Any) -> Any:
    """The loss of a batch of row numbers; what a row holds follows from its number."""
    import torch

    frequencies = torch.arange(1, 9)
    inputs = torch.sin(numbers[:, None] * frequencies)
    return torch.nn.functional.mse_loss(network(inputs), inputs.sum(1, keepdim=True))


def note(step: int, numbers: Any, loss: Any) -> None:
    """Append what a step has done: one line, one write."""
    line = json.dumps({"step": step, "rows": numbers.tolist(), "loss": loss.item().hex()}) + "\n"
    descriptor = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, line.encode())
    os.close(descriptor)
    time.sleep(0.004)  # a step of a real model takes longer than starting one


class Trainer:
    """The trainer of hostcore's job."""

    def setup(self, ctx: Any) -> None:
        import torch

        torch.set_num_threads(1)

    def configure(self, ctx: Any) -> Any:
        import torch

        network = model()
        return {"model": network, "optimizer": torch.optim.Adam(network.parameters(), lr=0.01)}

    def prepare_batch(self, raw_batch: Any) -> Any:
        from hostcore.toolkit import to_tensors

        return to_tensors(raw_batch, ["row"])["row"]

    def train_step(self, prepared_batch: Any, state: Any, ctx: Any) -> Any:
        from hostcore_hookspecs import StepResult

        loss = loss_of(state["model"], prepared_batch)
        state["optimizer"].zero_grad()
        loss.backward()
        state["optimizer"].step()
        note(ctx.run_state.step + 1, prepared_batch, loss)
        return StepResult(metrics={"loss": loss.detach()})

    def state_dict(self, state: Any) -> dict[str, object]:
        return {name: part.state_dict() for name, part in state.items()}

    def load_state_dict(self, state: Any, payload: Any) -> None:
        for name, part in state.items():
            part.load_state_dict(payload[name])


def lightning(place: Path) -> None:
    """Train with Lightning, from its last checkpoint if there is one; in a process of its own."""
    import lightning as pl
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint

    torch.set_num_threads(1)
    pl.seed_everything(0, verbose=False)

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = model()

        def training_step(self, batch: Any, _: int) -> Any:
            loss = loss_of(self.network, batch)
            note(self.global_step + 1, batch, loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    checkpoints = place / "checkpoints"
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ModelCheckpoint(checkpoints, every_n_train_steps=EVERY, save_last=True)],
    )
    loader = torch.utils.data.DataLoader(torch.arange(ROWS), batch_size=BATCH, shuffle=True)
    last = checkpoints / "last.ckpt"
    trainer.fit(Module(), loader, ckpt_path=str(last) if last.exists() else None)


def prepare(place: Path) -> None:
    """The rows and the job of hostcore."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"row": list(range(ROWS))}), place / "rows.parquet", row_group_size=256)
    job = {
        "run_id": "kills",
        "trainer": "kills:Trainer",
        "dataset": {"parquet_paths": ["rows.parquet"], "batch_size": BATCH, "shuffle": True},
        "epochs": EPOCHS,
        "checkpoint_every": EVERY,
    }
    (place / "job.json").write_text(json.dumps(job))


def command(way: str, place: Path) -> list[str]:
    """What starts the training, and what goes on with it."""
    if way == "lightning":
        return [sys.executable, __file__, "--train-lightning", str(place)]
    return [sys.executable, "-m", "hostcore", "run", str(place / "job.json")]


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


def train(way: str, place: Path, kills: int, dice: random.Random) -> dict[str, Any]:
    """Train to the last step, and kill on the way there."""
    log, failed, done = place / "steps.jsonl", 0, 0
    python_path = f"{Path(__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environment = {**os.environ, LOG: str(log), "PYTHONPATH": python_path, "HOSTCORE_RUNS_DIR": str(place / "runs")}
    while failed <= kills:
        due = len(lines(log)) + dice.randint(1, 2 * STEPS // max(kills, 1)) if done < kills else None
        with (place / "output.log").open("ab") as output:
            process = subprocess.Popen(command(way, place), env=environment, stdout=output, stderr=output, cwd=place)
        while process.poll() is None:
            if due is not None and len(lines(log)) >= due:
                time.sleep(dice.random() / 100)
                end(process)
                done += 1
                break
            time.sleep(0.005)
        else:
            if process.returncode == 0:
                return {"kills": done, "failed": failed, "steps": lines(log)}
            failed += 1
    raise SystemExit(f"{way} does not come to its end:\n{(place / 'output.log').read_text()[-4000:]}")


def compare(undisturbed: list[dict[str, Any]], run: dict[str, Any]) -> dict[str, int]:
    """What the kills have cost."""
    expected = {one["step"]: one for one in undisturbed}
    final = {one["step"]: one for one in run["steps"]}
    skipped = repeated = 0
    for epoch in range(EPOCHS):
        first = epoch * STEPS // EPOCHS
        seen = Counter(row for step in range(first + 1, first + STEPS // EPOCHS + 1) for row in final[step]["rows"])
        skipped += ROWS - len(seen)
        repeated += sum(count - 1 for count in seen.values())
    return {
        "kills": run["kills"],
        "failed starts": run["failed"],
        "trained again": len(run["steps"]) - len(final),
        "rows skipped": skipped,
        "rows repeated": repeated,
        "other losses": sum(final[step]["loss"] != expected[step]["loss"] for step in expected),
    }


def measure(way: str, kills: int, seed: int) -> dict[str, int]:
    """Train without a kill, and with kills."""
    with tempfile.TemporaryDirectory() as calm, tempfile.TemporaryDirectory() as rough:
        prepare(Path(calm))
        prepare(Path(rough))
        undisturbed = train(way, Path(calm), 0, random.Random(seed))["steps"]
        return compare(undisturbed, train(way, Path(rough), kills, random.Random(seed)))


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="hostcore,lightning")
    parser.add_argument("--rounds", type=int, default=1, help="each with the next seed; the figures are sums")
    results.add_option(parser)
    parser.add_argument("--train-lightning", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train_lightning:
        lightning(arguments.train_lightning)
        return
    table: dict[str, list[dict[str, int]]] = {}
    for way in arguments.only.split(","):
        if way != "hostcore" and importlib.util.find_spec(way) is None:
            continue
        seeds = range(arguments.seed, arguments.seed + arguments.rounds)
        table[way] = [measure(way, arguments.kills, seed) for seed in seeds]
    counts = {
        f"{way}, {column}": [figures[column] for figures in rounds]
        for way, rounds in table.items()
        for column in COLUMNS[1:]
    }
    results.write(arguments.json, "kills", results.rows("count", counts), kills=arguments.kills, seed=arguments.seed)
    print(f"{STEPS} steps, {ROWS} rows in each of {EPOCHS} epochs, a checkpoint every {EVERY} steps")
    print(f"| way | {' | '.join(COLUMNS)} |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    for way, rounds in table.items():
        sums = [sum(figures[column] for figures in rounds) for column in COLUMNS]
        print(f"| {way} | {' | '.join(map(str, sums))} |")


if __name__ == "__main__":
    main()
