"""What a step returns: which metrics are recorded, when, and what else a result asks for."""

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from hostcore.events.codec import encode_event


def one(outcome: Any) -> dict[str, float | None]:
    """The metrics of the only metrics event."""
    (event,) = outcome.of("metrics")
    return dict(event.payload.metrics)


@pytest.fixture
def step(run: Callable) -> Callable:
    """``step("plain")``: a run whose steps return that one of ``recording_trainer.RESULTS``."""

    def start(kind: str, **keys: Any) -> Any:
        job = {"trainer": "recording_trainer:Required", "mock_batches": [kind], "metric_every": 1, "max_steps": 1}
        return run({**job, **keys})

    return start


@pytest.mark.parametrize(
    ("kind", "metrics"),
    [
        ("names", {"train/loss": 1, "train/lr": 2, "grad_norm": 3, "train/x": 4, "val/loss": 5, "": 6}),
        ("other names", {"train/loss": 1, "train/lr": 2}),
        ("tensors", {"train/loss": 1.0, "grad": 0.5}),
        ("duck", {"train/loss": 1.0}),
        ("empty", {}),
    ],
)
def test_metrics_have_their_documented_names_and_are_read_of_any_class(
    step: Callable, kind: str, metrics: dict[str, float]
) -> None:
    assert one(step(kind)) == metrics


def test_results_of_other_classes_come_to_callbacks_as_they_are_and_have_wishes_and_debug_values(
    step: Callable,
) -> None:
    outcome = step("duck with control", callbacks=["recording_trainer:TwoHooks"])
    assert (outcome.of("metrics"), outcome.result.status) == ([], "succeeded")
    assert outcome.calls[0] == "on_batch_end SimpleNamespace"
    assert step("duck with debug", run_id="b").of("metrics")[0].payload.debug == {"step": 1}
    assert step("duck", run_id="c").of("metrics")[0].payload.debug == {}


class TestValues:
    def test_that_are_not_finite_are_null_and_named(self, step: Callable) -> None:
        outcome = step("nan")
        (event,) = outcome.of("metrics")
        assert event.payload.metrics == {"train/loss": None, "grad": None, "ok": 1.0}
        assert list(event.payload.nonfinite) == ["train/loss", "grad"]
        json.loads(encode_event(event), parse_constant=pytest.fail)
        assert outcome.result.status == "succeeded"
        assert outcome.result.metrics == {"train/loss": None, "grad": None, "ok": 1.0}

    def test_come_with_the_throughput_of_the_host(self, step: Callable) -> None:
        (event,) = step("plain").of("metrics")
        payload = event.payload
        assert payload.samples_per_second > 0
        assert payload.step_seconds >= payload.data_wait_seconds >= 0

    @pytest.mark.parametrize(
        ("kind", "message"),
        [
            ("none", "train_step returned NoneType at step 1, which has no `metrics`"),
            ("dictionary", "train_step returned dict at step 1, which has no `metrics`"),
            ("no mapping", "train_step at step 1 returned StepResult, which has no mapping `metrics`"),
            (
                "text",
                "the metric 'loss' of train_step at step 1 is not a number: expected a number, got '0.5' of class str",
            ),
            (
                "vector",
                "the metric 'loss' of train_step at step 1 is not a number: expected one number, got a tensor of shape",
            ),
            ("boolean", "the metric 'done' of train_step at step 1 is not a number"),
            ("huge", "the metric 'loss' of train_step at step 1 is not a number: int too large"),
            ("numbered", "the name of a metric of train_step at step 1 is not text: 1"),
            ("debug text", "the debug values of train_step at step 1 are str, not a mapping"),
            ("debug object", "the debug value 'model' of train_step at step 1 is not plain JSON: expected a number"),
            ("debug vector", "the debug value 'grad' of train_step at step 1 is not plain JSON: expected one number"),
            ("debug numbered", "the debug value 1 of train_step at step 1 is not plain JSON: Dict key must be str"),
            ("large debug", "the debug values of train_step at step 1 are more than 16 KiB of JSON, with 'rows'"),
        ],
    )
    def test_that_are_none_fail_the_run_with_an_error_that_explains_itself(
        self, step: Callable, kind: str, message: str
    ) -> None:
        outcome = step(kind, callbacks=["recording_trainer:TwoHooks"])
        assert (outcome.calls == []) == (kind in ("none", "dictionary")), "no callback gets it"
        error = outcome.result.error
        assert error.type == "InvalidStepResult"
        assert error.message.startswith(message)
        assert error.traceback == ""


class TestDebug:
    def test_is_recorded_with_the_metrics_of_the_step(self, step: Callable) -> None:
        recorded = step("debug", max_steps=3, metric_every=2).of("metrics")
        assert [event.payload.debug["step"] for event in recorded] == [2, 3]
        assert recorded[0].payload.debug == {"step": 2, "norm": 0.5, "nan": None, "texts": ["a", {"b": None}]}


class TestCadence:
    @pytest.mark.parametrize(("every", "steps"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (5, [5]), (6, [5]), (0, [])])
    def test_decides_with_the_last_step_at_which_steps_metrics_are_recorded(
        self, step: Callable, every: int, steps: list[int]
    ) -> None:
        assert list(step("plain", max_steps=5, metric_every=every).losses) == steps

    def test_goes_by_steps_of_the_run_and_not_of_the_epoch_or_attempt(self, step: Callable) -> None:
        step("plain", max_steps=3, metric_every=2)
        assert list(step("plain", max_steps=8, metric_every=2).losses) == [4, 6, 8]

    @pytest.mark.parametrize(("every", "read"), [(10, 2), (0, 0)])
    def test_leaves_metrics_unread_between_its_steps(
        self, step: Callable, recorder: ModuleType, every: int, read: int
    ) -> None:
        step("counted", max_steps=20, metric_every=every)
        assert recorder.CountingMetrics.looked_at == read

    def test_is_what_history_and_last_metrics_follow_after_a_resume_too(self, step: Callable) -> None:
        history = {"callbacks": ["recording_trainer:TwoHooks"], "metric_every": 2}
        step("plain", max_steps=4, run_id="parts", **history)
        again = step("plain", max_steps=6, run_id="parts", **history)
        assert again.calls[-3] == "history [(2, 2.0), (4, 4.0), (6, 6.0)]"
        outcome = step("plain", max_steps=5, **history)
        assert outcome.calls[-3:] == [
            "history [(2, 2.0), (4, 4.0), (5, 5.0)]",
            "metrics {'train/loss': 5.0}",
            "seen 5",
        ]
        assert outcome.result.metrics == {"train/loss": 5.0}


class TestWishes:
    def test_to_skip_leave_out_metrics_and_never_a_checkpoint(self, run: Callable) -> None:
        outcome = run(max_steps=4, metric_every=1, checkpoint_every=2, hyperparams={"skip_at": [2, 4]})
        assert list(outcome.losses) == [1, 3]
        assert [event.step for event in outcome.of("checkpoint_saved")] == [2, 4]

    def test_to_record_add_steps_between_the_cadence(self, run: Callable) -> None:
        wishes = {"record_at": [2, 3]}
        assert list(run(max_steps=5, metric_every=4, hyperparams=wishes).losses) == [2, 3, 4, 5]
        assert not run(max_steps=3, metric_every=0, hyperparams=wishes, run_id="b").losses, "the job wants none"

    def test_to_back_off_end_when_a_stop_is_asked_for(self, step: Callable) -> None:
        """Or else after their time, which for the last step is none. The trainer asks for an hour, or for little."""
        assert step("short backoff", max_steps=3, run_id="short").result.step == 3
        assert step("backoff", max_steps=1, run_id="last").result.status == "succeeded"
        outcome = step("backoff", max_steps=3, callbacks=["recording_trainer:StopFromAnotherThread"])
        assert (outcome.result.step, outcome.result.reason) == (1, "called off")
