"""What is found to be missing, made twice or out of place beside the steps, and what is not."""

from collections.abc import Sequence
from typing import Any

import pytest

from hostcore.verification.checks import RunCheck
from hostcore.verification.due_checks import Due

CADENCE = {"validate_every": 4, "sample_every": 8, "samples": 2, "test": True}


def attempt(
    number: int,
    *made: tuple[str, int],
    start: int = 0,
    owed: Sequence[str] = (),
    end: str | None = None,
    **cadence: Any,
) -> list[dict[str, Any]]:
    """The events of an attempt of 16 steps; of ``made``, ``0`` and ``1`` are samples.

    :param end: How its worker ended, at the step of what it made last.
    """

    def event(name: str, step: int | None, **content: Any) -> dict[str, Any]:
        return {"event": name, "step": step, "attempt": number, "src": [0, number, 0], **content}

    events = [event("run_submitted", None, total_steps=16)]
    events += [event("run_resumed", start, owed=list(owed))] if number > 1 else []
    events.append(event("run_started", start, **(cadence or CADENCE)))
    for name, step in made:
        is_sample = name.isdecimal()
        events.append(event("sample_saved" if is_sample else name, step, path=f"samples/step-{step:06d}/{name}"))
    if end:
        events.append(event(f"run_{end}", made[-1][1] if made else start))
    return events


def checked(*attempts: list[dict[str, Any]], left: Sequence[str] = ()) -> RunCheck:
    due = Due()
    for events in attempts:
        for event in events:
            due.add(event)
    return due.check(left=left)


def up_to(step: int) -> list[tuple[str, int]]:
    """Everything that is due up to a step; the metrics of every step are recorded."""
    made = []
    for done in range(1, step + 1):
        made.append(("metrics", done))
        made += [("validation", done)] if done % 4 == 0 else []
        made += [("0", done), ("1", done)] if done % 8 == 0 else []
    return made


def after(step: int) -> list[tuple[str, int]]:
    return [one for one in up_to(16) if one[1] > step] + [("test", 16)]


ALL = [*up_to(16), ("test", 16)]


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        (("validation", 8), "the validation of step 8 was due, and is not in the log"),
        (("validation", 16), "the validation of step 16 was due, and is not in the log"),
        (("1", 8), "the sample 1 of step 8 was due, and is not in the log"),
        (("test", 16), "attempt 1 succeeded, and has made 0 tests instead of 1"),
    ],
    ids=str,
)
def test_what_is_missing(lost: tuple[str, int], message: str) -> None:
    check = checked(attempt(1, *(one for one in ALL if one != lost), end="succeeded"))
    assert (check.status, check.message) == ("failed", message)


def test_what_is_whole_and_what_was_not_due() -> None:
    check = checked(attempt(1, *ALL, end="succeeded"))
    assert (check.status, check.message) == ("ok", "8 validations and samples, each once and where it was due")
    check = checked(attempt(1, *sorted([*ALL, ("validation", 7)], key=lambda one: one[1]), end="succeeded"))
    assert check.message == "the validation of step 7 is in the log, and was not due"
    left_out = [one for one in ALL if not (one[1] == 8 and one[0] != "validation")]
    assert checked(attempt(1, *left_out, end="succeeded")).status == "ok", (
        "the trainer leaves the samples of a step out"
    )
    earlier = checked(attempt(1, *up_to(4), device="cpu", end="succeeded"))
    assert earlier.status == "skipped", "a run of an earlier version is not judged"


def test_what_was_due_after_the_last_step_alone() -> None:
    cadence = {"validate_every": 5, "sample_every": 0, "samples": 0, "test": False}
    made = [("validation", 5), ("validation", 10), ("validation", 15)]
    assert checked(attempt(1, *made, ("validation", 16), end="succeeded", **cadence)).status == "ok"
    assert checked(attempt(1, *made, ("metrics", 16), end="succeeded", **cadence)).status == "failed"


def test_what_a_stop_has_left_is_made_once_by_the_next_attempt() -> None:
    cut = attempt(1, *up_to(7), ("metrics", 8), end="preempted")
    assert checked(cut, left=["validation", "samples/0"]).status == "ok", "the next attempt will make it"
    assert checked(cut).status == "failed", "no checkpoint has it"
    owed = ["validation", "samples/0"]
    made = [("validation", 8), ("0", 8), ("1", 8)]
    assert checked(cut, attempt(2, *made, *after(8), start=8, owed=owed, end="succeeded")).status == "ok"
    assert checked(cut, attempt(2, *made[1:], *after(8), start=8, owed=owed, end="succeeded")).status == "failed"
    assert checked(cut, attempt(2, *after(8), start=8, end="succeeded")).status == "failed", "lost"


def test_samples_that_are_left_begin_with_a_number() -> None:
    cut = attempt(1, *up_to(7), ("metrics", 8), ("validation", 8), ("0", 8), end="cancelled")
    assert checked(cut, left=["samples/1"]).status == "ok"
    assert checked(cut, attempt(2, ("1", 8), *after(8), start=8, owed=["samples/1"], end="succeeded")).status == "ok"
    twice = attempt(2, ("0", 8), ("1", 8), *after(8), start=8, owed=["samples/1"], end="succeeded")
    assert checked(cut, twice).message == "the sample 0 of step 8 was made 2 times"


def test_what_was_made_and_is_made_again_without_need() -> None:
    whole = attempt(1, *up_to(8), end="preempted")
    check = checked(whole, attempt(2, ("validation", 8), *after(8), start=8, end="succeeded"))
    assert check.message == "the validation of step 8 was made 2 times"


def test_what_a_killed_attempt_has_made_behind_its_checkpoint_is_made_again() -> None:
    killed = attempt(1, *up_to(13))
    assert checked(killed).status == "ok", "it has come as far as that"
    assert checked(killed, attempt(2, *after(8), start=8, end="succeeded")).status == "ok"
    again = attempt(
        3, ("validation", 8), ("0", 8), ("1", 8), *after(8), start=8, owed=["validation", "samples/0"], end="succeeded"
    )
    stopped = attempt(2, ("validation", 8), ("metrics", 9), start=8, owed=["validation", "samples/0"])
    assert checked(attempt(1, *up_to(7), ("metrics", 8), end="preempted"), stopped, again).status == "ok"
