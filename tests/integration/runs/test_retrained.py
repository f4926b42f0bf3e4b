"""Steps that are trained again after a kill prove the resume, or show that it is not exact."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import hostcore

KEYS = {"trainer": "small_trainer:Counting", "max_steps": 9, "metric_every": 1, "checkpoint_every": 4}
COUNTS, EXACT = {"how": "counts", "at": 8}, {"at": 8}
DIFFERENCE = "trained again after a resume, train/loss of step 5 is 1.7714"


def checks(said: Any) -> dict[str, tuple[str, str]]:
    return {one["id"]: (one["status"], one["message"]) for one in said.json["checks"]}


@pytest.fixture(scope="module")
def inexact(project: Any) -> Any:
    """A run that was killed in step 8, and went on from step 4 with a counter that no checkpoint has."""
    job = project.job("inexact.json", run_id="inexact", hyperparams=COUNTS, max_restarts=1, **KEYS)
    return project.command("run", job)


class TestARunThatResumesWithoutAllOfItsState:
    def test_succeeds_and_ends_with_a_warning(self, inexact: Any, project: Any) -> None:
        assert inexact.code == 0, inexact.err
        assert f"  warning       {DIFFERENCE}" in inexact.out
        assert "state_dict returns" in inexact.out
        (warning,) = project.run("inexact").result["warnings"]
        assert (warning["code"], warning["first_step"]) == ("resume.differs", 5)

    def test_has_one_event_with_the_step_the_metric_and_both_values(self, inexact: Any, project: Any) -> None:
        (event,) = [one for one in project.run("inexact").events if one.get("code") == "resume.differs"]
        assert (event["attempt"], event["step"]) == (2, 5)
        assert event["message"].startswith(DIFFERENCE)
        assert " in attempt 2 and was 8.857" in event["message"]

    def test_says_so_in_its_status_and_its_report(self, inexact: Any, project: Any) -> None:
        assert DIFFERENCE in project.command("status", "inexact").out
        assert project.command("report", "inexact", "-o", "report.html").code == 0
        assert DIFFERENCE in (project.path / "report.html").read_text().partition("<main")[0]

    def test_does_not_verify(self, inexact: Any, project: Any) -> None:
        said = project.command("verify", "inexact", "--json")
        status, message = checks(said)["log.retrained"]
        assert (said.code, status) == (1, "failed")
        assert message.startswith("3 of 3 measurements that were made again differ: train/loss of step 5 is 1.77")

    def test_says_so_as_long_as_it_goes_on_from_there(self, inexact: Any, project: Any) -> None:
        project.copy("inexact", "longer")
        assert DIFFERENCE in project.command("resume", "longer", "--set", "max_steps=10").out
        (project.run("longer").path / "result.json").unlink()
        assert DIFFERENCE in project.command("status", "longer").out


def test_a_run_that_resumes_exactly_is_proved_to_do_so(project: Any) -> None:
    job = project.job("exact.json", run_id="exact", hyperparams=EXACT, max_restarts=1, **KEYS)
    said = project.command("run", job)
    assert (said.code, "warning" in said.out) == (0, False)
    verified = project.command("verify", "exact", "--json")
    proved = ("ok", "attempt 2 trained step 5 to 7 again: 3 measurements, the same bit for bit")
    assert (verified.code, checks(verified)["log.retrained"]) == (0, proved)
    assert project.run("exact").result["warnings"] == []


def test_a_run_that_begins_again_at_step_0_is_compared_as_well(project: Any) -> None:
    keys = {**KEYS, "checkpoint_every": 0}
    job = project.job("anew.json", run_id="anew", hyperparams=COUNTS, max_restarts=1, **keys)
    assert project.command("run", job).code == 0
    message = checks(project.command("verify", "anew", "--json"))["log.retrained"]
    assert message == ("ok", "attempt 2 trained step 1 to 7 again: 7 measurements, the same bit for bit")


def test_after_a_stop_between_two_steps_verify_says_what_it_has_not_seen(project: Any) -> None:
    job = project.job("clean.json", run_id="clean", max_steps=4, metric_every=1)
    assert project.command("run", job).code == 0
    assert "log.retrained" not in checks(project.command("verify", "clean", "--json"))
    assert project.command("resume", "clean", "--set", "max_steps=6").code == 0
    said = project.command("verify", "clean")
    last = said.out.splitlines()[-1]
    assert (said.code, last) == (
        0,
        "nothing lost, skipped or repeated; whether a resume is exact was not seen  clean",
    )


class TestAJobThatDoesNotTakeAnInexactResume:
    def test_fails_and_is_not_started_again(self, project: Any) -> None:
        keys = {**KEYS, "on_inexact_resume": "fail", "max_restarts": 5}
        job = project.job("strict.json", run_id="strict", hyperparams=COUNTS, **keys)
        assert project.command("run", job).code == 1
        result = project.run("strict").result
        assert (result["status"], result["attempt"], result["error"]["type"]) == ("failed", 2, "InexactResume")
        assert result["error"]["message"].startswith(DIFFERENCE)
        again = project.command("resume", "strict", "--json").json
        assert (again["status"], again["error"]["type"]) == ("failed", "InexactResume")
        assert project.command("resume", "strict", "--set", "on_inexact_resume=warn").code == 0

    def test_goes_on_when_the_resume_is_exact(self, project: Any) -> None:
        keys = {**KEYS, "on_inexact_resume": "fail", "max_restarts": 1}
        job = project.job("strict-exact.json", run_id="strict-exact", hyperparams=EXACT, **keys)
        assert project.command("run", job, "--json").json["status"] == "succeeded"


@pytest.fixture(scope="module")
def killed(project: Any) -> Callable[[str], Any]:
    """``killed("copy")``: a run that was killed in step 8, and dies no more."""
    job = project.job("killed.json", run_id="killed", hyperparams=COUNTS, **KEYS)
    assert project.command("run", job).code == 1

    def copy(name: str) -> Any:
        (project.path / f"{name}.died").touch()
        return project.copy("killed", name)

    return copy


class TestADifferenceThatIsToBeExpected:
    def test_names_its_cause_and_is_no_fault(self, killed: Callable, project: Any) -> None:
        killed("shorter")
        said = project.command("resume", "shorter", "--set", "max_steps=8", "--set", "on_inexact_resume=fail")
        assert said.code == 0, said.err
        (event,) = [one for one in project.run("shorter").events if one["event"] == "warning"]
        assert event["code"] == "resume.expected_difference"
        assert event["message"].endswith(": expected, for the job's 'max_steps'")
        verified = project.command("verify", "shorter", "--json")
        assert (verified.code, checks(verified)["log.retrained"][0]) == (0, "warning")

    def test_is_one_of_other_threads_as_well(self, killed: Callable, project: Any) -> None:
        path = killed("threads").path / "config" / "run.json"
        path.write_text(path.read_text().replace('"threads"', '"other"').replace('"torch": "', '"torch": "0.'))
        assert project.command("resume", "threads").code == 0
        message = checks(project.command("verify", "threads", "--json"))["log.retrained"][1]
        assert ": expected, for torch 0." in message


def test_a_run_in_this_process_is_compared_as_well(here: Path) -> None:
    torch.set_num_threads(1)  # as its trainer does
    job = {
        **KEYS,
        "trainer": "small_trainer:CountingOnce",
        "hyperparams": {**COUNTS},
        "device": "cpu",
        "run_id": "here",
    }
    result = hostcore.run({**job, "max_restarts": 1, "terminal": False})
    assert result.status == "succeeded"
    assert [one.code for one in result.warnings] == ["resume.differs"]
    strict = {**job, "max_restarts": 1, "terminal": False, "run_id": "here-strict", "on_inexact_resume": "fail"}
    failed = hostcore.run(strict)
    assert failed.error is not None
    assert (failed.status, failed.error.type) == ("failed", "InexactResume")
