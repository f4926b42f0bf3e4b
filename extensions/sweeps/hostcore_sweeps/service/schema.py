"""Responses of ``/v1/sweeps``."""

from typing import Any, Final

from pydantic import BaseModel, Field

_MS: Final = "Milliseconds since 1970; null if it has not happened."
_STATES: Final = "running", "paused", "complete", "pruned", "failed"

#: For the OpenAPI document; FastAPI leaves out of its examples what is null.
EXAMPLE: Final[dict[str, Any]] = {
    "sweep_id": "digits-3f1c9d0e",
    "status": "paused",
    "reason": "stopped by the user",
    "max_trials": 30,
    "counts": {"running": 0, "paused": 2, "complete": 9, "pruned": 3, "failed": 0},
    "objectives": [{"metric": "val/loss", "mode": "min", "value": "last"}],
    "best": [{"number": 7, "objective": {"val/loss": 0.0312}}],
    "started_ms": 1_795_250_000_000,
    "driven_ms": 420_000,
}
TRIAL: Final[dict[str, Any]] = {
    "number": 7,
    "run_id": "digits-3f1c9d0e-0007",
    "state": "pruned",
    "values": {"/hyperparams/learning_rate": 0.003},
    "parent": 3,
    "objective": {"val/loss": 0.0312},
    "step": 120,
    "reason": "pruned by median at step 120: val/loss was 0.0312",
    "pruned_at": 120,
    "starts": 1,
    "sampled_ms": 1_795_250_000_000,
    "started_ms": 1_795_250_000_100,
    "ended_ms": 1_795_250_060_000,
}
FIGURE: Final[dict[str, Any]] = {
    "title": "val/loss by trial",
    "description": "12 trials. The best so far was 0.0312 at trial 7.",
    "legend": [["curve sofar", "best so far"]],
    "width": 960,
    "height": 320,
    "marks": [{"look": "dot complete q0 best", "d": "M74,270h0", "title": "trial 7, complete", "trial": 7}],
    "labels": [{"text": "0.1", "x": "60", "y": "40", "anchor": "end"}],
}
IMPORTANCE: Final[dict[str, Any]] = {
    "metric": "val/loss",
    "shares": {},
    "best": 5,
    "complete": 7,
    "why_not": "10 complete trials are needed, and there are 7.",
}


class Objective(BaseModel):
    """Metric by which trials are compared."""

    metric: str
    mode: str = Field(description="`min` or `max`.")
    value: str = Field(description="Which of a trial's values counts: the `last` or the `best`.")


class BestTrial(BaseModel):
    """One of the best trials."""

    number: int
    objective: dict[str, float | None] = Field(description="By metric.")


class Sweep(BaseModel):
    """Status of a sweep."""

    sweep_id: str
    status: str = Field(description="`running`, `paused` (no driver lives, and something is left to do) or `finished`.")
    reason: str | None = Field(description="Reason for the end of the last driver, or its last sign of life.")
    max_trials: int = Field(description="How many trials there are to be.")
    counts: dict[str, int] = Field(description=f"Trials by state: {', '.join(_STATES)}.")
    objectives: list[Objective]
    best: list[BestTrial] = Field(description="One; of several objectives those that no trial is better than in all.")
    started_ms: int | None = Field(description=_MS)
    driven_ms: int = Field(description="Time in which a driver was at work, over all sessions, in milliseconds.")


class UnreadableSweep(BaseModel):
    """A folder of a sweep that cannot be read."""

    sweep_id: str
    error: str


class SweepList(BaseModel):
    """The sweeps beside the service's runs, those begun last first."""

    sweeps: list[Sweep]
    unreadable: list[UnreadableSweep]


class Trial(BaseModel):
    """One trial."""

    number: int
    run_id: str
    state: str = Field(description="`running`, `paused`, `complete`, `pruned` or `failed`.")
    values: dict[str, Any] = Field(description="What was sampled, by JSON pointer into the job.")
    parent: int | None = Field(description="The trial from whose checkpoint it began: population based training.")
    objective: dict[str, float | None] = Field(description="By metric; null where it is not finite.")
    step: int
    reason: str | None
    pruned_at: int | None = Field(description="The step at which it was pruned.")
    starts: int = Field(description="How often its run was started or resumed.")
    sampled_ms: int = Field(description=_MS)
    started_ms: int | None = Field(description=_MS)
    ended_ms: int | None = Field(description=_MS)


class SweepDetail(Sweep):
    """A sweep with its trials."""

    trials: list[Trial]


class Mark(BaseModel):
    """A path of a picture."""

    look: str = Field(description="Its classes.")
    d: str = Field(description="As in SVG.")
    title: str | None = Field(description="Tooltip.")
    trial: int | None


class Label(BaseModel):
    """A text of a picture."""

    text: str
    x: str
    y: str
    anchor: str


class Figure(BaseModel):
    """A picture, in units of its view box."""

    title: str
    description: str = Field(description="For people who do not see it.")
    legend: list[tuple[str, str]] = Field(description="Classes, the first of which is a shape, and words.")
    width: int
    height: int
    marks: list[Mark]
    labels: list[Label]


class Importance(BaseModel):
    """Importance of parameters for an objective (PED-ANOVA)."""

    metric: str
    shares: dict[str, float] = Field(description="By JSON pointer; together 1.")
    best: int = Field(description="How many trials count as the best.")
    complete: int
    why_not: str | None = Field(description="Why it is not known.")


class Figures(BaseModel):
    """The pictures of a sweep, as its report has them."""

    history: list[Figure]
    parallel: list[Figure]
    curves: list[Figure]
    importances: list[Importance]
