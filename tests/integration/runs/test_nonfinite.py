"""A run whose metrics are not finite: it stays as it ended, and says so wherever its end is told."""

from typing import Any

import pytest


@pytest.fixture(scope="module")
def diverged(project: Any) -> Any:
    """A run whose loss is NaN from step 4 to its end, at step 6."""
    callback = {"use": "small_trainer:NotFinite", "first": 4}
    job = project.job("diverged.json", run_id="diverged", max_steps=6, metric_every=1, callbacks=[callback])
    return project.command("run", job)


SINCE_4 = "train/loss has not been finite since step 4"


class TestARunWhoseLossIsNaN:
    def test_succeeds_and_says_since_when_and_what_to_do(self, diverged: Any, project: Any) -> None:
        assert diverged.code == 0
        assert diverged.out.startswith("succeeded  diverged\n")
        assert f"  warning     {SINCE_4}\n" in diverged.out
        assert 'hint        a lower learning rate or the callback "grad-clip"' in diverged.out
        assert "nonfinite-guard" in diverged.out

    def test_has_a_warning_in_its_result(self, diverged: Any, project: Any) -> None:
        (warning,) = project.run("diverged").result["warnings"]
        assert (warning["code"], warning["metric"]) == ("metrics.nonfinite", "train/loss")
        assert (warning["first_step"], warning["last_step"], warning["is_over"]) == (4, 6, False)
        assert warning["message"] == SINCE_4
        assert "nonfinite-guard" in warning["hint"]

    def test_says_so_in_its_status_and_its_report(self, diverged: Any, project: Any) -> None:
        status = project.command("status", "diverged")
        assert f"  warning     {SINCE_4}\n" in status.out
        assert (
            project.command("status", "diverged", "--json").json["warnings"]
            == (project.run("diverged").result["warnings"])
        )
        assert project.command("report", "diverged", "-o", "report.html").code == 0
        head = (project.path / "report.html").read_text().partition("<main")[0]
        assert SINCE_4 in head
        assert "nonfinite-guard" in head

    def test_says_so_when_it_is_started_again_or_goes_on(self, diverged: Any, project: Any) -> None:
        again = project.command("run", project.path / "diverged.json")
        assert "finished before" in again.out
        assert SINCE_4 in again.out
        project.copy("diverged", "longer")
        longer = project.command("resume", "longer", "--set", "max_steps=8")
        assert longer.code == 0, longer.err
        assert SINCE_4 in longer.out
        (warning,) = project.run("longer").result["warnings"]
        assert (warning["first_step"], warning["last_step"]) == (4, 8)


def test_a_loss_that_becomes_finite_again_says_when_it_was_not(project: Any) -> None:
    callback = {"use": "small_trainer:NotFinite", "first": 2, "last": 4}
    job = project.job("over.json", run_id="over", max_steps=6, metric_every=1, callbacks=[callback])
    (warning,) = project.command("run", job, "--json").json["warnings"]
    assert (warning["message"], warning["is_over"]) == ("train/loss was not finite at steps 2 to 4", True)


def test_what_an_attempt_recorded_beyond_the_checkpoint_that_the_next_begins_from_does_not_count(project: Any) -> None:
    callback = {"use": "small_trainer:NotFinite", "first": 4, "fails": 6}
    keys = {"max_steps": 8, "metric_every": 1, "checkpoint_every": 4, "max_restarts": 1}
    job = project.job("back.json", run_id="back", callbacks=[callback], **keys)
    ended = project.command("run", job, "--json").json
    assert (ended["status"], ended["attempt"]) == ("succeeded", 2)
    assert project.run("back").metric("train/loss")[5] is not None
    finite = [one["message"] for one in ended["warnings"] if one["code"] == "metrics.nonfinite"]
    assert finite == ["train/loss was not finite at step 4"]


def test_a_run_whose_metrics_are_finite_has_no_warnings(project: Any) -> None:
    ended = project.command("run", project.job("fine.json", run_id="fine", max_steps=2, metric_every=1))
    assert "warning" not in ended.out
    assert project.run("fine").result["warnings"] == []


def test_a_validation_that_is_not_finite_counts(project: Any) -> None:
    (project.path / "validating.py").write_text(
        "from small_trainer import Trainer as Small\n"
        "class Trainer(Small):\n"
        "    def validate_step(self, prepared_batch, state, ctx): ...\n"
    )
    callback = {"use": "small_trainer:NotFinite", "first": 100}
    data = {"source": "mock", "num_rows": 4, "batch_size": 2}
    keys = {"validation": data, "validate_every": 2, "max_steps": 4, "metric_every": 1, "callbacks": [callback]}
    job = project.job("validated.json", run_id="validated", trainer="validating:Trainer", **keys)
    ended = project.command("run", job)
    assert "val/loss has not been finite since step 2" in ended.out, ended.err
