"""What a trial of a sweep costs, beside the same trials by Optuna alone and by Ray Tune.

`hostcore sweep` tries the digits with random hyperparameters and ASHA; each trial is a run, in processes of its own,
with a log on the disk and a checkpoint at its end. Then the peers train the same trials, with the same values for as
many steps as counted there, in a bare PyTorch loop: ``optuna`` one after the other in one process, ``ray`` each in a
worker of Ray's. What they keep beside the values is what each keeps by default. One trial at a time and one thread
everywhere. The time of CPUs is that of processes that were waited for: Ray's daemons are not in it.

    pip install ./extensions/inspect ./extensions/sweeps 'ray[tune]' './example_trainers/digits[data]'
    python benchmarks/sweep_cost.py [--trials 12] [--epochs 10] [--rounds 3] [--json FILE]
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import results

_BATCH = 64
_STEPS_PER_EPOCH = 16
SPACE = {
    "/hyperparams/learning_rate": {"log_uniform": [1e-4, 3e-2]},
    "/hyperparams/dropout": {"uniform": [0.0, 0.6]},
    "/hyperparams/channels": {"choice": [8, 16, 32]},
}


def train(values: Mapping[str, Any], steps: int, data: Path) -> list[float]:
    """A bare loop over the digits; the validation losses after each epoch."""
    import pyarrow.parquet as pq
    import torch
    from digits.model import DigitsModel
    from torch.nn import functional

    from hostcore_toolkit import to_tensors

    torch.set_num_threads(1)
    torch.manual_seed(0)
    sets = {}
    for name in ("train", "validation"):
        batch = pq.read_table(data / f"{name}.parquet").combine_chunks().to_batches()[0]
        sets[name] = to_tensors(batch, ["image", "label"])
    model = DigitsModel(channels=values["/hyperparams/channels"], dropout=values["/hyperparams/dropout"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=values["/hyperparams/learning_rate"])
    images, labels = sets["train"]["image"], sets["train"]["label"].long()
    losses = []
    for step in range(steps):
        if step % _STEPS_PER_EPOCH == 0:
            order = torch.randperm(len(images))
        rows = order[step % _STEPS_PER_EPOCH * _BATCH :][:_BATCH]
        optimizer.zero_grad()
        functional.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()
        if (step + 1) % _STEPS_PER_EPOCH == 0:
            model.eval()
            with torch.no_grad():
                found = model(sets["validation"]["image"])
                losses.append(functional.cross_entropy(found, sets["validation"]["label"].long()).item())
            model.train()
    return losses


def by_optuna(trials: Sequence[Mapping[str, Any]], data: Path, folder: Path) -> None:
    """The trials in one process, kept in Optuna's journal."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(storage=JournalStorage(JournalFileBackend(str(folder / "journal"))))

    def objective(trial: optuna.Trial) -> float:
        one = trials[trial.number]
        for name, value in one["values"].items():
            trial.set_user_attr(name, value)
        losses = train(one["values"], one["step"], data)
        for epoch, loss in enumerate(losses):
            trial.report(loss, epoch)
        return losses[-1]

    study.optimize(objective, n_trials=len(trials))


def by_ray(trials: Sequence[Mapping[str, Any]], data: Path, folder: Path) -> None:
    """The trials in workers of Ray Tune."""
    import ray
    from ray import tune

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)

    def trainable(config: dict[str, Any]) -> None:
        one = trials[config["number"]]
        for loss in train(one["values"], one["step"], data):
            tune.report({"loss": loss})

    space = {"number": tune.grid_search(list(range(len(trials))))}
    configured = tune.RunConfig(storage_path=str(folder), verbose=0)
    found = tune.Tuner(trainable, param_space=space, run_config=configured).fit()
    if found.errors:
        raise SystemExit(f"Ray Tune has failed: {found.errors[0]}")


def measured(command: Sequence[str], **options: Any) -> tuple[float, float]:
    """Seconds by the clock and of CPUs that a command takes, with all that it has started and waited for."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options)
    after, took = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def swept(folder: Path, data: Path, trials: int, epochs: int) -> tuple[tuple[float, float], list[dict[str, Any]]]:
    """What the sweep takes, and its trials."""
    job = {
        "trainer": "digits",
        "dataset": {"parquet_paths": [str(data / "train.parquet")], "batch_size": _BATCH, "shuffle": True},
        "validation": {"parquet_paths": [str(data / "validation.parquet")], "batch_size": 512},
        "epochs": epochs,
        "validate_every": "epoch",
        "device": "cpu",
    }
    sweep = {
        "sweep_id": "digits",
        "job": job,
        "space": SPACE,
        "objective": {"metric": "val/loss", "mode": "min"},
        "sampler": "random",
        "pruner": {"use": "asha", "min_steps": 2 * _STEPS_PER_EPOCH},
        "limits": {"trials": trials},
    }
    (folder / "sweep.json").write_text(json.dumps(sweep))
    hostcore = [sys.executable, "-m", "hostcore", "sweep"]
    took = measured([*hostcore, "sweep.json"], cwd=folder, stderr=subprocess.DEVNULL)
    status = subprocess.run([*hostcore, "status", "digits", "--json"], cwd=folder, check=True, capture_output=True)
    return took, [dict(row) for row in json.loads(status.stdout)["trials"]]


def main() -> None:
    """Measure, print, and write."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--trials", type=int, default=12)
    ask.add_argument("--epochs", type=int, default=10)
    ask.add_argument("--rounds", type=int, default=3)
    ask.add_argument("--peer", choices=["optuna", "ray"], help=argparse.SUPPRESS)
    ask.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    results.add_option(ask)
    options = ask.parse_args()
    if options.peer:
        trials = json.loads((options.folder / "trials.json").read_text())
        (by_optuna if options.peer == "optuna" else by_ray)(trials, options.folder / "data", options.folder)
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    clock: dict[str, list[float]] = {"hostcore": [], "optuna": [], "ray": []}
    cpus: dict[str, list[float]] = {"hostcore": [], "optuna": [], "ray": []}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            data = folder / "data"
            subprocess.run(
                [sys.executable, "-m", "digits.prepare_data", "--out", data], check=True, capture_output=True
            )
            took, trials = swept(folder, data, options.trials, options.epochs)
            (folder / "trials.json").write_text(json.dumps(trials))
            steps = sum(trial["step"] for trial in trials)
            measures = {"hostcore": took}
            for peer in ("optuna", "ray"):
                again = [sys.executable, __file__, "--peer", peer, "--folder", str(folder)]
                measures[peer] = measured(again, stderr=subprocess.DEVNULL)
            for who, (by_clock, of_cpus) in measures.items():
                clock[who].append(by_clock / options.trials)
                cpus[who].append(of_cpus / options.trials)
    print(f"{options.trials} trials, {steps} steps that count; seconds a trial")
    for who, values in clock.items():
        by_clock, of_cpus = (f"{min(each):.2f}..{max(each):.2f}" for each in (values, cpus[who]))
        print(f"{who:10}  by the clock {by_clock}  of CPUs {of_cpus}")
    rows = results.rows("s a trial", {f"{who}, by the clock": values for who, values in clock.items()})
    rows |= results.rows("s a trial", {f"{who}, of CPUs": values for who, values in cpus.items()})
    results.write(options.json, "sweep_cost", rows, trials=options.trials, epochs=options.epochs)


if __name__ == "__main__":
    main()
