"""``early-stopping`` and ``best-checkpoint`` in whole runs."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner
from played import Played

from hostcore.checkpoints.state import read_state
from hostcore.cli import cli
from hostcore.errors import Errors
from hostcore.runs.directory import RunDirectory
from hostcore.runs.history import History

STOPPING = {"use": "early-stopping", "patience": 2}


class Ran(Played):
    """A run that is over."""

    @property
    def steps_kept(self) -> list[int]:
        return sorted(int(path.name.removeprefix("step-")) for path in (self.path / "checkpoints").glob("step-*[0-9]"))

    def weight_at(self, step: int) -> float:
        """The trainer's weight in a checkpoint: the number of steps that made it."""
        return float(read_state(self.path / "checkpoints" / f"step-{step:06d}", "state")["weight"])


@pytest.fixture
def run(run_job: Callable[..., Played]) -> Callable[..., Ran]:
    """``run(max_steps=4, losses=[3, 2])``: a run that validates every two steps; what is no key is a hyperparameter."""

    def start(*callbacks: Any, max_steps: int = 20, keys: dict[str, Any] | None = None, **hyperparams: Any) -> Ran:
        data = {"source": "mock", "num_rows": 8, "batch_size": 2}
        job = {
            "trainer": "watched:Trainer",
            "dataset": data,
            "validation": data,
            "test": data,
            "validate_every": 2,
            "metric_every": 1,
            "max_steps": max_steps,
            **(keys or {}),
        }
        return Ran(*attrs.astuple(run_job(job, *callbacks, **hyperparams), recurse=False))

    return start


@pytest.fixture
def look(run: Callable[..., Ran]) -> Callable[..., str]:
    """``look("status", "a")``: the output of a command about the runs."""

    def call(*arguments: str) -> str:
        result = CliRunner().invoke(cli, arguments, prog_name="hostcore", catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    return call


def test_the_lowest_validated_loss_is_the_best_where_no_callback_asks_for_one(
    run: Callable[..., Ran], look: Callable[..., str]
) -> None:
    expected = {"metric": "val/loss", "value": 2.0, "step": 4}
    interrupted = {"use": "chaos", "faults": ["sigint@step=5"]}
    assert run(interrupted, max_steps=8, losses=[3, 2, 2.5]).result.best == expected
    ran = run(interrupted, max_steps=8, losses=[3, 2, 2.5])
    assert (ran.result.status, ran.result.attempt, ran.result.best) == ("succeeded", 2, expected)
    run(max_steps=4, losses=[5, 4], keys={"run_id": "b"})
    sides = json.loads(look("compare", "a", "b", "--no-plot", "--json"))
    assert (sides["a"]["best"], sides["b"]["best"]["value"]) == (expected, 4.0)
    assert re.search(
        r"^best +val/loss 2 at step 4 +val/loss 4 at step 4$", look("compare", "a", "b", "--no-plot"), re.M
    )
    assert json.loads(look("status", "a", "--json"))["best"] == expected
    assert re.search(r"^  best +val/loss 2 at step 4$", look("status", "a"), re.M)
    page = Path(json.loads(look("report", "a", "--json"))["report"]).read_text()
    assert "<dt>Best</dt><dd>val/loss 2 at step 4</dd>" in page
    (ran.path / "result.json").unlink()  # as of a run that has none yet
    assert json.loads(look("status", "a", "--json"))["best"] == expected


def test_stops_and_leaves_the_best_weights_in_the_test_the_metrics_and_the_final_checkpoint(
    run: Callable[..., Ran],
) -> None:
    ran = run(STOPPING, losses=[3, 2, 2.5, 2.2])  # four steps an epoch
    result = ran.result
    assert (result.status, result.exit_code, result.step, result.epoch) == ("succeeded", 0, 8, 1)
    assert result.reason == "val/loss has not improved in 2 validations: best 2 at step 4, now 2.2"
    assert "early-stopping" in result.requested_by
    expected = {"train/loss": 1 / 4, "val/loss": 2.0, "test/weight": 4.0}
    assert (result.restored_step, result.metrics) == (4, expected)
    history = History(RunDirectory(ran.path))
    history.read_on()
    assert history.metrics == expected
    assert result.final_checkpoint == "checkpoints/step-000008"
    assert ran.weight_at(8) == 4.0
    (restored,) = [event.payload for event in ran.of("trainer_restored")]
    assert (restored.restored_step, restored.reason) == (4, "val/loss was best there: 2")
    assert restored.values == {"train/loss": 1 / 4, "val/loss": 2.0}
    assert [(event.step, event.epoch) for event in ran.of("checkpoint_saved")] == [(2, 0), (4, 0), (8, 1)]
    assert [event.epoch for event in ran.of("epoch_started")] == [0, 1], "no further epoch is shown"
    assert not ran.of("warning")


@pytest.mark.parametrize(
    ("monitor", "max_steps", "keys", "wishes"),
    [
        ("val/loss", 6, {}, {"losses": [3, 2, 2.5]}),
        ("train/loss", 8, {"validation": None, "validate_every": 0}, {"training": [4] * 4 + [5] * 4}),
    ],
)
def test_a_run_that_comes_to_its_end_has_the_best_weights_too(
    run: Callable[..., Ran], monitor: str, max_steps: int, keys: dict[str, Any], wishes: dict[str, Any]
) -> None:
    ran = run({**STOPPING, "monitor": monitor, "patience": 9}, max_steps=max_steps, keys=keys, **wishes)
    assert (ran.result.step, ran.result.reason) == (max_steps, None)
    assert (ran.result.metrics["test/weight"], ran.weight_at(max_steps)) == (4.0, 4.0)


def test_metrics_that_follow_a_return_are_those_of_the_steps_that_follow(run: Callable[..., Ran]) -> None:
    ran = run({"use": "watched:Back", "at": 4, "to": 2}, max_steps=6, losses=[3, 2, 2.5], keys={"test": None})
    assert (ran.result.restored_step, ran.result.metrics) == (None, {"train/loss": 1 / 6, "val/loss": 2.5})


def test_the_last_weights_stay_when_they_are_the_best_or_nothing_is_to_be_restored(run: Callable[..., Ran]) -> None:
    assert run(STOPPING, max_steps=4, losses=[3, 2]).result.metrics["test/weight"] == 4.0
    last = {**STOPPING, "restore_best": False}
    ran = run(last, keys={"run_id": "b"}, losses=[3, 2, 2.5, 2.2])
    assert (ran.result.step, ran.result.metrics["test/weight"]) == (8, 8.0)


def states_in(ran: Ran) -> list[dict[str, Any]]:
    """Return the values that ``watched:Reads`` read."""
    return [json.loads(one.removesuffix(" (watched:Reads)")) for one in ran.warnings if one.startswith("{")]


def test_the_state_of_early_stopping_is_in_the_run_state_and_comes_back_after_an_interruption(
    run: Callable[..., Ran],
) -> None:
    interrupted = {"use": "chaos", "faults": ["sigint@step=7"]}
    callbacks, losses = (STOPPING, interrupted, "watched:Reads"), [3, 2, 2.5, 2.2]
    first = [state["early-stopping"] for state in states_in(run(*callbacks, losses=losses))]
    assert [(one["best"], one["best_step"], one["waited"]) for one in first] == [
        *((None, None, 0), (3.0, 2, 0), (2.0, 4, 0), (2.0, 4, 1))
    ]
    ran = run(*callbacks, losses=losses)
    resumed = [state["early-stopping"] for state in states_in(ran)]
    assert [(one["best_step"], one["waited"]) for one in resumed] == [(4, 1), (4, 2)]
    assert (ran.result.status, ran.result.attempt, ran.result.step) == ("succeeded", 2, 8)
    assert ran.result.reason == "val/loss has not improved in 2 validations: best 2 at step 4, now 2.2"
    assert ran.result.metrics["test/weight"] == 4.0


def test_states_of_callbacks_of_one_name_are_apart_and_some_have_none(run: Callable[..., Ran]) -> None:
    more = {"use": "best-checkpoint", "monitor": "train/loss"}
    ran = run(STOPPING, {**STOPPING, "monitor": "train/loss"}, more, "watched:Reads", max_steps=2)
    waited = [[one["early-stopping"]["best"], one["early-stopping#2"]["best"]] for one in states_in(ran)]
    assert waited == [[None, None], [1.0, None]]
    assert all(set(one) == {"early-stopping", "early-stopping#2", "best-checkpoint"} for one in states_in(ran))


def test_steps_between_validations_are_not_judged_by_the_value_before(run: Callable[..., Ran]) -> None:
    ran = run({**STOPPING, "patience": 1}, max_steps=5, keys={"validate_every": 4}, losses=[3, 2])
    assert (ran.result.step, ran.result.reason) == (5, None)


def test_nan_is_no_improvement_and_no_best(run: Callable[..., Ran]) -> None:
    ran = run(STOPPING, losses=[2, None, None])
    assert ran.result.step == 6
    assert ran.result.reason.endswith("best 2 at step 2, now nan, no finite number in 2")
    assert ran.result.metrics["test/weight"] == 2.0
    never = run(STOPPING, keys={"run_id": "b"}, losses=[None])
    assert (never.result.step, never.result.metrics["test/weight"]) == (4, 4.0)


def test_the_first_of_several_that_has_waited_long_enough_stops_the_run(run: Callable[..., Ran]) -> None:
    accuracy = {"use": "early-stopping", "monitor": "accuracy", "patience": 3}
    ran = run(STOPPING, accuracy, losses=[5, 4, 3, 2, 1], accuracies=[0.8, 0.9, 0.7, 0.6, 0.5])
    assert ran.result.step == 10
    assert ran.result.reason.startswith("val/accuracy has not improved in 3 validations: best 0.9 at step 4")
    assert ran.result.metrics["test/weight"] == 4.0


@pytest.mark.parametrize("use", ["early-stopping", "best-checkpoint"])
@pytest.mark.parametrize(
    ("monitor", "keys", "message"),
    [
        ("val/losss", {}, "the validation reports no metric 'val/losss'; it reports 'val/loss'"),
        ("val_loss", {}, "the validation reports no metric 'val/val_loss'; it reports 'val/loss'"),
        ("loss", {"validation": None, "validate_every": 0}, "there is never a val/loss: the job never validates"),
    ],
)
def test_a_monitor_that_never_comes_is_an_invalid_job(
    run: Callable[..., Ran], tmp_path: Path, use: str, monitor: str, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(Errors) as caught:
        run("csv-metrics", {"use": use, "monitor": monitor}, keys=keys)
    (error,) = caught.value.errors
    assert (error.pointer, error.message) == ("/callbacks/1/monitor", message)
    if not keys:
        assert error.hint == "did you mean 'val/loss'?"
    assert use in error.plugin
    assert not (tmp_path / "runs" / "a").exists()


@pytest.mark.parametrize(
    ("monitor", "batches"),
    [
        pytest.param("val/losss", 0, id="without a check"),
        pytest.param("vall/loss", 2, id="where steps may have to come first"),
    ],
)
def test_a_monitor_that_never_comes_ends_the_run_at_the_first_validation(
    run: Callable[..., Ran], monitor: str, batches: int
) -> None:
    ran = run({**STOPPING, "monitor": monitor}, keys={"sanity_batches": batches})
    result = ran.result
    assert (result.status, result.exit_code, result.step) == ("failed", 1, 2)
    assert result.error.message == f"the validation reports no metric {monitor!r}; it reports 'val/loss'"
    assert result.error.hint == "did you mean 'val/loss'?"
    assert "early-stopping" in result.error.plugin
    assert result.error.traceback == ""


def test_a_training_metric_is_judged_at_the_end_of_each_epoch(run: Callable[..., Ran]) -> None:
    watch = {"use": "early-stopping", "monitor": "train/loss", "patience": 1}
    flat = [4, 4, 4, 4, 3, 3, 3, 3, 9, 1, 9, 1, 0, 0, 0, 0]  # three epochs of four steps with means 4, 3, 5
    ran = run(watch, training=flat, keys={"validation": None, "validate_every": 0})
    assert ran.result.step == 12
    assert ran.result.reason == "train/loss has not improved in 1 epoch: best 3 at step 8, now 5"
    assert (ran.result.metrics["test/weight"], ran.weight_at(12)) == (8.0, 8.0)


def test_the_best_checkpoint_of_each_watched_metric_is_kept_though_others_are_pruned(run: Callable[..., Ran]) -> None:
    keys = {"checkpoint_every": 1, "keep_checkpoints": 1}
    accuracy = {"use": "best-checkpoint", "monitor": "accuracy"}
    wishes = {"losses": [3, 2, None, 2.5], "accuracies": [0.5, 0.8, 0.9, 0.8]}
    ran = run("best-checkpoint", accuracy, max_steps=9, keys=keys, **wishes)
    assert ran.steps_kept == [4, 6, 9]
    assert ran.weight_at(4) == 4.0
    bests = [(event.step, dict(event.payload.best)) for event in ran.of("checkpoint_saved") if event.payload.best]
    assert bests == [
        *((2, {"val/loss": 3.0, "val/accuracy": 0.5}), (4, {"val/loss": 2.0, "val/accuracy": 0.8})),
        (6, {"val/accuracy": 0.9}),
    ]
