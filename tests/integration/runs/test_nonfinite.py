"""A run whose metrics are not finite: it stays as it ended, and says so wherever its end is told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

SINCE_4 = "train/loss has not been finite since step 4"


def not_finite(first: int, **more: int) -> dict[str, Any]:
    return {"metric_every": 1, "callbacks": [{"use": "small_trainer:NotFinite", "first": first, **more}]}


def test_a_run_whose_loss_is_nan_to_its_end_says_so_everywhere(run_here: Callable, look: Callable) -> None:
    ended = run_here("diverged", max_steps=6, **not_finite(4))
    assert ended.code == 0
    assert "succeeded  diverged\n" in ended.out
    assert f"  warning     {SINCE_4}\n" in ended.out
    assert 'hint        a lower learning rate or the callback "grad-clip"' in ended.out
    status = look("status", "diverged", "--json").json
    (warning,) = status["warnings"]
    assert (warning["code"], warning["metric"]) == ("metrics.nonfinite", "train/loss")
    assert (warning["first_step"], warning["last_step"], warning["is_over"]) == (4, 6, False)
    assert warning["message"] == SINCE_4
    assert f"  warning     {SINCE_4}\n" in look("status", "diverged").out
    assert look("report", "diverged", "-o", "report.html").code == 0
    head = Path("report.html").read_text().partition("<main")[0]
    assert SINCE_4 in head
    for text in (ended.out, warning["hint"], head):
        assert "nonfinite-guard" in text
    again = run_here("diverged", max_steps=6, **not_finite(4))
    assert "finished before" in again.out
    assert SINCE_4 in again.out
    (warning,) = run_here("diverged", "--json", max_steps=8, **not_finite(4)).json["warnings"]
    assert (warning["first_step"], warning["last_step"]) == (4, 8)


def test_a_loss_that_becomes_finite_again_says_when_it_was_not(run_here: Callable) -> None:
    (warning,) = run_here("over", "--json", max_steps=6, **not_finite(2, last=4)).json["warnings"]
    assert (warning["message"], warning["is_over"]) == ("train/loss was not finite at steps 2 to 4", True)


def test_what_an_attempt_recorded_beyond_the_checkpoint_that_the_next_begins_from_does_not_count(
    run_here: Callable, events_of: Callable
) -> None:
    keys = {"max_steps": 8, "checkpoint_every": 4, "max_restarts": 1}
    ended = run_here("back", "--json", **keys, **not_finite(4, fails=6)).json
    assert (ended["status"], ended["attempt"]) == ("succeeded", 2)
    (_, fifth) = [one for one in events_of("back", "metrics") if one["step"] == 5]
    assert fifth["metrics"]["train/loss"] is not None
    finite = [one["message"] for one in ended["warnings"] if one["code"] == "metrics.nonfinite"]
    assert finite == ["train/loss was not finite at step 4"]


def test_a_run_whose_metrics_are_finite_has_no_warnings(run_here: Callable, look: Callable) -> None:
    assert "warning" not in run_here("fine", max_steps=2, metric_every=1).out
    assert look("status", "fine", "--json").json["warnings"] == []


def test_a_validation_that_is_not_finite_counts(run_here: Callable) -> None:
    Path("validating.py").write_text(
        "from small_trainer import Trainer as Small\n"
        "class Trainer(Small):\n"
        "    def validate_step(self, prepared_batch, state, ctx): ...\n"
    )
    data = {"source": "mock", "num_rows": 4, "batch_size": 2}
    keys = {"trainer": "validating:Trainer", "validation": data, "validate_every": 2, "max_steps": 4}
    ended = run_here("validated", **keys, **not_finite(100))
    assert "val/loss has not been finite since step 2" in ended.out, ended.err
