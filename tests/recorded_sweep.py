"""Sweeps that were recorded without a run: what a driver would have written about trials that went as a test says."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from hostcore.runs.lease import ProcessIdentity
from hostcore_sweeps.folder import SweepFolder, TrialPlace
from hostcore_sweeps.records import (
    PruneDecided,
    RecordLog,
    SessionEnded,
    SessionStarted,
    TrialEnded,
    TrialReported,
    TrialSampled,
    TrialStarted,
    TrialState,
)
from hostcore_sweeps.spec import Sweep, load_sweep

BEGUN_MS = 1_795_250_000_000
JOB = {"trainer": "quadratic:Trainer", "mock_batches": [1], "max_steps": 40, "device": "cpu"}
SWEEP: dict[str, Any] = {
    "sweep_id": "recorded",
    "job": JOB,
    "space": {
        "/hyperparams/learning_rate": {"log_uniform": [1e-4, 1.0]},
        "/hyperparams/layers": {"integer": [1, 6]},
        "/hyperparams/optimizer": {"choice": ["sgd", "adam", "muon"]},
        "/hyperparams/momentum": {"uniform": [0, 0.99], "when": {"/hyperparams/optimizer": "sgd"}},
    },
    "objective": {"metric": "val/loss", "mode": "min"},
    "limits": {"trials": 24, "parallel": 2},
}


def walk(**keys: Any) -> Sweep:
    """A small sweep of which nothing is recorded."""
    job = {"trainer": "tiny", "max_steps": 3}
    space, objective = {"/hyperparams/lr": {"uniform": [0, 1]}}, {"metric": "loss", "mode": "min"}
    whole = {"sweep_id": "walk", "job": job, "space": space, "objective": objective, "limits": {"trials": 3}}
    return load_sweep({**whole, **keys})


@attrs.frozen(kw_only=True)
class Past:
    """How a trial went."""

    values: Mapping[str, Any]
    parent: int | None = None
    state: TrialState | None = "complete"
    #: By step: the metrics.
    reports: Mapping[int, Mapping[str, float | None]] = attrs.field(factory=dict)
    objective: Mapping[str, float] = attrs.field(factory=dict)
    reason: str | None = None


def record(folder: Path, pasts: Sequence[Past], *, ends: bool = True, **keys: Any) -> SweepFolder:
    """Write the folder of a sweep.

    :param ends: Whether its driver has ended.
    :param keys: Of the sweep's file.
    """
    sweep = load_sweep({**SWEEP, **keys}, folder=folder)
    made = SweepFolder(folder / sweep.sweep_id)
    made.make(sweep, TrialPlace(runs=folder / "runs"))
    now = iter(range(BEGUN_MS, BEGUN_MS + 10**9, 1000))
    log = RecordLog(made.records, clock=lambda: next(now))
    log.append(SessionStarted(process=ProcessIdentity.current()))
    for number, past in enumerate(pasts):
        log.append(TrialSampled(number=number, run_id=sweep.run_id(number), values=past.values, parent=past.parent))
        log.append(TrialStarted(number=number))
        for step, values in past.reports.items():
            log.append(TrialReported(number=number, step=step, values=values))
        last = max(past.reports, default=0)
        if past.state == "pruned":
            log.append(PruneDecided(number=number, step=last, reason=past.reason or "pruned by median"))
        if past.state is not None:
            log.append(
                TrialEnded(number=number, state=past.state, values=past.objective, step=last, reason=past.reason)
            )
    if ends:
        log.append(SessionEnded(status="finished", reason=f"{len(pasts)} trials have ended"))
    log.close()
    return made


def descent(rate: float, *, steps: int = 40, floor: float = 0.02) -> dict[int, dict[str, float | None]]:
    """The reports of a trial whose loss falls, faster or slower."""
    return {step: {"val/loss": floor + 2 * math.exp(-rate * step)} for step in range(2, steps + 1, 2)}


def whole_sweep() -> list[Past]:
    """Trials of all kinds: two of three are complete, some were pruned, and two have failed."""
    pasts = []
    for number in range(24):
        rate = 10 ** (-4 + 4 * ((number * 7) % 24) / 23)
        optimizer = ("sgd", "adam", "muon")[number % 3]
        values: dict[str, Any] = {
            "/hyperparams/learning_rate": rate,
            "/hyperparams/layers": 1 + number % 6,
            "/hyperparams/optimizer": optimizer,
        }
        if optimizer == "sgd":
            values["/hyperparams/momentum"] = number / 25
        speed = rate * (0.4, 1.0, 0.8)[number % 3]
        if number in (9, 17):
            reason = "failed: ValueError: the loss has exploded"
            pasts.append(Past(values=values, state="failed", reports=descent(speed, steps=6), reason=reason))
        elif number > 6 and rate < 0.003:
            reports = descent(speed, steps=10)
            value = reports[10]["val/loss"]
            assert value is not None
            reason = f"pruned by median at step 10: val/loss was {value:.6g}"
            pasts.append(
                Past(values=values, state="pruned", reports=reports, objective={"val/loss": value}, reason=reason)
            )
        else:
            reports = descent(speed, floor=0.02 + 0.001 * number)
            value = reports[40]["val/loss"]
            assert value is not None
            pasts.append(Past(values=values, reports=reports, objective={"val/loss": value}))
    return pasts
