"""The trainer ``process``: calls each method of the contract in a child process."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import attrs
import pyarrow as pa
from annotated_types import Gt, MinLen

from hostcore_builtin_plugins.process.child import PROTOCOL, Child, ChildFailed
from hostcore_hookspecs import (
    Capabilities,
    InvalidSettings,
    Place,
    SampleRequest,
    StepContext,
    StepControl,
    StepResult,
    Uri,
)

#: What a child need not have, with the key of the job that asks for it.
_OPTIONAL: Final = {
    "validate_step": "validation",
    "test_step": "test",
    "generate_sample": "samples",
    "teardown": None,
}
#: JSON has no numbers for these; as Protocol Buffers write them in JSON.
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@attrs.frozen(kw_only=True)
class Hyperparams:
    """The child's command, and the parameters for it."""

    command: Annotated[tuple[Uri, ...], MinLen(1)] = attrs.field(
        metadata={"help": "The program and its arguments. A relative path begins at `cwd`."}
    )
    cwd: Path | None = attrs.field(
        default=None,
        metadata={
            "help": "Its working directory; `.` is the job file's folder.",
            "default": "where hostcore was started",
        },
    )
    env: Mapping[str, Uri] = attrs.field(
        factory=dict, metadata={"help": "Environment variables beside those of the worker."}
    )
    start_seconds: Annotated[float, Gt(0)] = attrs.field(
        default=60.0, metadata={"help": "How long it may take until the child has answered the first message."}
    )
    settings: Annotated[Mapping[str, Any], Place()] = attrs.field(
        factory=dict, metadata={"help": "The child's own settings; passed on as they are."}
    )


@attrs.frozen(kw_only=True)
class PreparedBatch:
    """A batch that the child holds."""

    #: By which the child knows it.
    number: int = attrs.field(eq=False)
    rows: int


class ProcessTrainer:
    """Trains in a program of any language, that speaks ``hostcore.trainer/1``."""

    CAPABILITIES = Capabilities(accumulate=True)
    Hyperparams = Hyperparams

    def setup(self, ctx: StepContext) -> None:
        """Start the child, and make the handshake.

        :raises InvalidSettings: It cannot be started, or lacks what the job asks for.
        """
        given: Hyperparams = ctx.hyperparams
        self._ctx = ctx
        self._prepared = 0
        self._child = Child(given.command, cwd=given.cwd, env=given.env, notified=self._notified)
        try:
            said = self._child.begin(_run(ctx, given.settings), seconds=given.start_seconds)
            self._methods = _methods(said)
            self._check(said, ctx)
            self._child.call("setup", {})
        except BaseException:
            self._child.end()
            raise

    def configure(self) -> Child:
        """Have the child build its model; the child is the state."""
        try:
            self._child.call("configure", {})
        except BaseException:
            self._child.end()
            raise
        return self._child

    def prepare_batch(self, raw_batch: Any, state: Child) -> PreparedBatch:
        """Send a batch. The child's answer is read with that of the step."""
        self._prepared += 1
        params: dict[str, Any] = {"batch": self._prepared}
        if not isinstance(raw_batch, pa.RecordBatch):  # of mock_batches: JSON
            state.ask("prepare_batch", {**params, "rows": None, "value": raw_batch})
            return PreparedBatch(number=self._prepared, rows=0)
        params |= {"rows": raw_batch.num_rows, "begins_stream": state.begins_stream(raw_batch.schema)}
        state.ask("prepare_batch", params)
        state.send_batch(raw_batch)
        return PreparedBatch(number=self._prepared, rows=raw_batch.num_rows)

    def train_step(
        self, prepared_batch: PreparedBatch | tuple[PreparedBatch, ...], state: Child, ctx: StepContext
    ) -> StepResult:
        """One step of the child's, on one batch, or on those of a tuple."""
        return _step(state, "train_step", prepared_batch, ctx)

    def validate_step(self, prepared_batch: PreparedBatch, state: Child, ctx: StepContext) -> StepResult:
        """A batch of a validation."""
        return _step(state, "validate_step", prepared_batch, ctx)

    def test_step(self, prepared_batch: PreparedBatch, state: Child, ctx: StepContext) -> StepResult:
        """A batch of the test."""
        return _step(state, "test_step", prepared_batch, ctx)

    def generate_sample(
        self, state: Child, step: int, request: SampleRequest, output_dir: str
    ) -> Mapping[str, object] | None:
        """Have the child write a sample."""
        params = {"step": step, "request": attrs.asdict(request), "output_dir": output_dir}
        return _object_or_null(state.call("generate_sample", params), "generate_sample")

    def state_dict(self) -> dict[str, object]:
        """The child writes its state itself, in :meth:`save_checkpoint`."""
        return {"protocol": PROTOCOL}

    def load_state_dict(self, payload: dict[str, object]) -> None:
        """See :meth:`load_checkpoint`.

        :raises ChildFailed: The checkpoint was written by way of another protocol.
        """
        if payload.get("protocol") != PROTOCOL:
            raise ChildFailed(f"the checkpoint is one of {payload.get('protocol')!r}, not of {PROTOCOL}")

    def save_checkpoint(self, state: Child, step: int, output_dir: str, final: bool) -> Mapping[str, object] | None:
        """Have the child write its state into a folder."""
        params = {"step": step, "output_dir": output_dir, "final": final}
        return _object_or_null(state.call("save_checkpoint", params), "save_checkpoint")

    def load_checkpoint(self, state: Child, checkpoint_dir: str, ctx: StepContext) -> None:
        """Have the child read its state from a folder."""
        state.call("load_checkpoint", {"step": ctx.run_state.step, "checkpoint_dir": checkpoint_dir})

    def teardown(self, state: Child) -> None:
        """End the child."""
        try:
            if "teardown" in self._methods and not state.is_lost:
                state.call("teardown", {})
        finally:
            state.end()

    def _check(self, said: Mapping[str, Any], ctx: StepContext) -> None:
        """See that the child has what the job asks for."""
        for method, key in _OPTIONAL.items():
            if key is not None and getattr(ctx.job, key) and method not in self._methods:
                keys = "`samples` or `sample_every`" if key == "samples" else f"`{key}`"
                told = f"the program has no {method}, which {keys} of the job needs"
                raise InvalidSettings("/command", told, hint=f"remove {keys} from the job, or add it to the program")
        if ctx.job.accumulate > 1 and said.get("accumulate") is not True:
            told = f"the program takes one batch a step, and the job accumulates {ctx.job.accumulate}"
            raise InvalidSettings(
                "/command", told, hint='answer `initialize` with "accumulate": true, or change the job'
            )

    def _notified(self, method: str, params: Mapping[str, Any]) -> None:
        """Handle a notification of the child."""
        text = params.get("message" if method == "warn" else "reason")
        if method not in ("warn", "request_stop") or not isinstance(text, str):
            raise ChildFailed(f"the program sent a notification that {PROTOCOL} does not have: {method!r}")
        if method == "warn":
            self._ctx.warn(text)
        else:
            self._ctx.request_stop(text)


def _run(ctx: StepContext, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first message to a child: the description of the run."""
    job = ctx.job
    return {
        "settings": settings,
        "run": {
            "run_id": job.run_id,
            "run_dir": ctx.run_dir,
            "seed": job.seed,
            "device": str(ctx.device),
            "batch_size": job.batch_size,
            "accumulate": job.accumulate,
            "total_steps": ctx.run_state.total_steps,
            "model_handles": {name: str(place) for name, place in ctx.model_handles.items()},
        },
    }


def _methods(said: Mapping[str, Any]) -> frozenset[str]:
    """The optional methods that a child has."""
    methods = said.get("methods", [])
    if not isinstance(methods, list) or not set(map(str, methods)) <= _OPTIONAL.keys():
        raise ChildFailed(
            f"the program answered `initialize` with `methods` that {PROTOCOL} does not have: {methods!r}",
            hint=f"some of {', '.join(_OPTIONAL)}; all others are required",
        )
    return frozenset(methods)


def _step(
    child: Child, method: str, prepared: PreparedBatch | tuple[PreparedBatch, ...], ctx: StepContext
) -> StepResult:
    batches = prepared if isinstance(prepared, tuple) else (prepared,)
    state = ctx.run_state
    params = {"batches": [one.number for one in batches], "step": state.step, "epoch": state.epoch}
    return _step_result(child.call(method, params), method)


def _step_result(answer: Any, method: str) -> StepResult:
    """A step's result, from JSON."""
    if not isinstance(answer, Mapping) or not isinstance(answer.get("metrics"), Mapping):
        raise _wrong(method, answer, 'an object with "metrics", such as {"metrics": {"loss": 0.5}}')
    if unknown := answer.keys() - {"metrics", "debug", "weight", "control"}:
        raise _wrong(method, answer, f"only metrics, debug, weight and control, and no {', '.join(sorted(unknown))}")
    weight = answer.get("weight")
    return StepResult(
        debug=_object_or_null(answer.get("debug"), f"{method}: debug") or {},
        metrics={str(name): _number(value, f"{method}: metric {name!r}") for name, value in answer["metrics"].items()},
        weight=None if weight is None else _number(weight, f"{method}: weight"),
        control=_control(answer.get("control"), method),
    )


def _control(answer: Any, method: str) -> StepControl | None:
    if answer is None:
        return None
    known = {"skip_cadence_emit", "record_metrics", "backoff_seconds"}
    if not isinstance(answer, Mapping) or answer.keys() - known:
        raise _wrong(method, answer, f"a control of {', '.join(sorted(known))}")
    backoff = answer.get("backoff_seconds")
    return StepControl(
        skip_cadence_emit=answer.get("skip_cadence_emit") is True,
        record_metrics=answer.get("record_metrics") is True,
        backoff_seconds=None if backoff is None else _number(backoff, f"{method}: backoff_seconds"),
    )


def _number(value: Any, where: str) -> float | int:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(where, value, 'a number, or "NaN", "Infinity" or "-Infinity"')
    return value


def _object_or_null(answer: Any, method: str) -> Mapping[str, object] | None:
    if answer is not None and not isinstance(answer, Mapping):
        raise _wrong(method, answer, "an object, or null")
    return answer


def _wrong(where: str, answer: Any, wanted: str) -> ChildFailed:
    return ChildFailed(
        f"the program answered {where} with {type(answer).__name__}: {answer!r:.80}", hint=f"it takes {wanted}"
    )
