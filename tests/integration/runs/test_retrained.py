"""Steps that are trained again after a kill prove the resume, or show that it is not exact."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Said

#: Dies once, in step 8, when there is a checkpoint of step 4, and goes on from there.
KEYS = {"trainer": "small_trainer:CountingOnce", "max_steps": 9, "metric_every": 1, "checkpoint_every": 4}
#: With a counter that no checkpoint has, and without.
COUNTS, EXACT = {"how": "counts", "at": 8}, {"at": 8}
DIFFERENCE = "trained again after a resume, train/loss of step 5 is 1.7714"


@pytest.fixture(scope="module")
def run(run_here: Callable[..., Said]) -> Callable[..., Said]:
    """``run("a", max_steps=9, …)``: ``hostcore run`` of a job with a counter that no checkpoint has."""
    torch.set_num_threads(1)  # as the trainer does: other threads are an expected difference
    return lambda run_id, *options, **keys: run_here(run_id, *options, **{**KEYS, "hyperparams": COUNTS, **keys})


def retrained(said: Said) -> tuple[str, str]:
    """What ``hostcore verify --json`` has found of steps that were trained again."""
    (found,) = [one for one in said.json["checks"] if one["id"] == "log.retrained"]
    return found["status"], found["message"]


def test_a_run_that_resumes_without_all_of_its_state_says_so_everywhere(
    run: Callable, look: Callable, events_of: Callable, here: Path
) -> None:
    said = run("inexact", max_restarts=1)
    assert said.code == 0, said.err
    assert f"  warning       {DIFFERENCE}" in said.out
    assert "state_dict returns" in said.out
    (event,) = [one for one in events_of("inexact", "warning") if one["code"] == "resume.differs"]
    assert (event["attempt"], event["step"]) == (2, 5)
    assert event["message"].startswith(DIFFERENCE)
    assert " in attempt 2 and was 8.857" in event["message"]
    status = look("status", "inexact", "--json").json
    assert [(one["code"], one["first_step"]) for one in status["warnings"]] == [("resume.differs", 5)]
    assert DIFFERENCE in look("status", "inexact").out
    assert look("report", "inexact", "-o", "report.html").code == 0
    assert DIFFERENCE in Path("report.html").read_text().partition("<main")[0]
    verified = look("verify", "inexact", "--json")
    assert (verified.code, retrained(verified)[0]) == (1, "failed")
    message = "3 of 3 measurements that were made again differ: train/loss of step 5 is 1.77"
    assert retrained(verified)[1].startswith(message)
    assert DIFFERENCE in run("inexact", max_restarts=1, max_steps=10).out, "as long as it goes on from there"
    (here / "inexact" / "result.json").unlink()
    assert DIFFERENCE in look("status", "inexact").out


def test_a_run_that_resumes_exactly_is_proved_to_do_so(project: Any) -> None:
    """In processes, of which one dies; and its job takes no other resume."""
    keys = {**KEYS, "trainer": "small_trainer:Counting", "on_inexact_resume": "fail", "max_restarts": 1}
    said = project.command("run", project.job("exact.json", run_id="exact", hyperparams=EXACT, **keys))
    assert (said.code, "warning" in said.out) == (0, False)
    verified = project.command("verify", "exact", "--json")
    proved = ("ok", "attempt 2 trained step 5 to 7 again: 3 measurements, the same bit for bit")
    assert (verified.code, retrained(verified)) == (0, proved)
    assert project.run("exact").result["warnings"] == []


def test_a_run_that_begins_again_at_step_0_is_compared_as_well(run: Callable, look: Callable) -> None:
    assert run("anew", max_restarts=1, checkpoint_every=0).code == 0
    message = retrained(look("verify", "anew", "--json"))
    assert message == ("ok", "attempt 2 trained step 1 to 7 again: 7 measurements, the same bit for bit")


def test_after_a_stop_between_two_steps_verify_says_what_it_has_not_seen(run: Callable, look: Callable) -> None:
    plain = {"trainer": "small_trainer:Trainer", "hyperparams": {}}
    assert run("clean", max_steps=4, **plain).code == 0
    assert "log.retrained" not in {one["id"] for one in look("verify", "clean", "--json").json["checks"]}
    assert run("clean", max_steps=6, **plain).code == 0
    said = look("verify", "clean")
    last = "nothing lost, skipped or repeated; whether a resume is exact was not seen  clean"
    assert (said.code, said.out.splitlines()[-1]) == (0, last)


class TestProveResume:
    """``prove_resume``: steps behind the checkpoint of a stop, which the next attempt trains again."""

    @pytest.fixture
    def stopped(self, run: Callable, request: pytest.FixtureRequest) -> Callable[..., Said]:
        """``stopped("counts")``: a run of 12 steps that stops at step 6, or another, and its next attempt."""
        self.run_id = re.sub(r"\W+|_", "-", request.node.name).strip("-")

        def both(how: str = "", at: int = 6, **keys: Any) -> Said:
            keys = {"trainer": "small_trainer:CountingStopped", "max_steps": 12, "prove_resume": 2, **keys}
            keys |= {"hyperparams": {"at": at, "how": how}}
            assert run(self.run_id, **keys).code == 75
            return run(self.run_id, **keys)

        return both

    def test_a_stop_is_no_kill_and_its_resume_is_proved_all_the_same(
        self, stopped: Callable, run: Callable, look: Callable, events_of: Callable
    ) -> None:
        said = stopped()
        assert (said.code, "warning" in said.out) == (0, False), said.err
        verified = look("verify", self.run_id, "--json")
        assert (verified.code, retrained(verified)) == (
            0,
            ("ok", "attempt 2 trained step 7 to 8 again: 2 measurements, the same bit for bit"),
        )
        probes = [
            (one["attempt"], one["step"], one["values"]["train/loss"]) for one in events_of(self.run_id, "resume_probe")
        ]
        assert [one[:2] for one in probes] == [(1, 7), (1, 8), (2, 7), (2, 8)]
        (end,) = events_of(self.run_id, "run_preempted")
        assert end["step"] == 6
        assert run("undisturbed", trainer="small_trainer:Counting", max_steps=12, hyperparams={}).code == 0
        losses = {one["step"]: one["metrics"]["train/loss"] for one in events_of("undisturbed", "metrics")}
        found = events_of(self.run_id, "metrics")
        assert {one["step"]: one["metrics"]["train/loss"] for one in found} == losses
        assert len(found) == 12
        assert {step: loss for _, step, loss in probes} == {step: losses[step] for step in (7, 8)}

    def test_one_without_all_of_its_state_is_told(self, stopped: Callable, look: Callable) -> None:
        said = stopped("counts")
        assert (said.code, "trained again after a resume, train/loss of step 7" in said.out) == (0, True)
        assert look("verify", self.run_id).code == 1

    @pytest.mark.parametrize(
        ("at", "behind", "again"),
        [
            pytest.param(6, [7], range(7, 13), id="before the end of an epoch"),
            pytest.param(7, range(8, 13), range(8, 13), id="at its end"),
        ],
    )
    def test_it_ends_with_an_epoch_and_with_the_run(
        self, stopped: Callable, look: Callable, events_of: Callable, at: int, behind: Any, again: Any
    ) -> None:
        data = {"source": "mock", "num_rows": 28, "batch_size": 4}
        assert stopped(at=at, prove_resume=9, dataset=data, metric_every=0).code == 0
        assert [one["step"] for one in events_of(self.run_id, "resume_probe")] == [*behind, *again]
        assert look("verify", self.run_id).code == 0

    def test_what_fails_there_is_a_warning(self, stopped: Callable, events_of: Callable) -> None:
        assert stopped("fails behind the stop").code == 0
        (warning,) = events_of(self.run_id, "warning")
        assert warning["code"] == "resume.not_proved"
        assert warning["message"].endswith("for `prove_resume`, failed: ValueError: it was to stop")


def test_a_job_that_does_not_take_an_inexact_resume_fails_and_is_not_started_again(run: Callable) -> None:
    keys = {"on_inexact_resume": "fail", "max_restarts": 5}
    for said in [run("strict", "--json", **keys) for _ in range(2)]:
        result = said.json
        assert (said.code, result["status"], result["error"]["type"]) == (1, "failed", "InexactResume")
        assert result["error"]["message"].startswith(DIFFERENCE)
    assert result["attempt"] == 3
    assert run("strict", max_restarts=5).code == 0


class TestADifferenceThatIsToBeExpected:
    @pytest.fixture
    def killed(self, run: Callable, request: pytest.FixtureRequest) -> str:
        """A run that has died in step 8."""
        run_id = request.node.name.replace("_", "-")[:20]
        assert run(run_id).code == 1
        return run_id

    def test_names_its_cause_and_is_no_fault(
        self, killed: str, run: Callable, look: Callable, events_of: Callable
    ) -> None:
        said = run(killed, max_steps=8, on_inexact_resume="fail")
        assert said.code == 0, said.err
        (event,) = events_of(killed, "warning")
        assert event["code"] == "resume.expected_difference"
        assert event["message"].endswith(": expected, for the job's 'max_steps'")
        verified = look("verify", killed, "--json")
        assert (verified.code, retrained(verified)[0]) == (0, "warning")

    def test_is_one_of_other_threads_as_well(self, killed: str, run: Callable, look: Callable, here: Path) -> None:
        path = here / killed / "config" / "run.json"
        path.write_text(path.read_text().replace('"threads"', '"other"').replace('"torch": "', '"torch": "0.'))
        assert run(killed).code == 0
        assert ": expected, for torch 0." in retrained(look("verify", killed, "--json"))[1]
