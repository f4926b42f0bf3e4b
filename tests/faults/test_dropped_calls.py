"""Whichever fsync or rename is left out of the commit protocol, a power cut brings it to light: each of them is needed.

An fsync is left out of a recording; a rename is left out of the protocol while it runs, which may end it with an error
or leave something that breaks a promise.
"""

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from disk_log import Call, Disturbance, undisturbed
from power_scenarios import AGAIN, SCENARIOS, Checker, Recording, calls, failing

#: What may be left out, and why. All the same it is done: for nothing to be left behind longer than need be, and since
#: what removes or renames is one function, wherever it is needed.
UNNEEDED = {
    "Draft.commit > _remove > remove_file > fsync_folder": "what comes back is hidden, and the next attempt removes it",
    "Draft.commit > _remove > remove_folder > fsync_folder": "the same",
    "prune > remove > remove_file > fsync_folder": "the same: its folder is gone for good by then",
    "Draft.commit > _publish > move > fsync_folder after rename checkpoints/step-N.set-aside-1": (
        "somebody's folder lies in the way again, and nothing of ours has taken its place"
    ),
}
#: What leaves a new checkpoint or takes an old one away.
CHANGES = [name for name in SCENARIOS if "refused" not in name]


def place_in_protocol(recorded: Recording, place: int) -> str:
    """What a call is for: the functions that lead to it, its path, the change before it. Of any step and attempt."""
    call, before = recorded.log[place], "the beginning"
    for entry in recorded.log[:place]:
        if isinstance(entry, Call) and entry.kind != "fsync":
            before = f"{entry.kind} {entry.target or entry.path}"
    assert isinstance(call, Call)
    return re.sub(r"(step|attempt)-\d+", r"\1-N", f"{call.site} of {call.path} after {before}")


def site(recorded: Recording, place: int) -> str:
    """The functions that lead to a call, and its path."""
    call = recorded.log[place]
    assert isinstance(call, Call)
    return f"{call.site} of {call.path}"


def recovers(call: Call) -> bool:
    """Whether it clears away what a killed attempt has left."""
    return call.site.startswith("remove_uncommitted")


def what_is_missed(
    recordings: Iterable[Recording],
    checker: Checker,
    seed: int,
    name: Callable[[Recording, int], str],
    among: Callable[[Call], bool],
) -> Mapping[str, str | None]:
    """What goes wrong without each fsync; None if nothing does, in none of the recordings.

    :param name: Tells apart what counts as one and the same call.
    :param among: Which of them matter.
    """
    missed: dict[str, str | None] = {}
    for recorded in recordings:
        assert checker.first_violation(recorded, random.Random(seed)) is None
        for place, call in calls(recorded, "fsync"):
            called = name(recorded, place)
            if among(call) and not missed.get(called):
                missed[called] = checker.first_violation(recorded.without(place), random.Random(seed))
    for called, violation in sorted(missed.items()):
        print(f"without {called}: {violation}")
    return missed


def test_every_fsync_of_a_commit_or_a_prune_is_needed(checker: Checker, tmp_path: Path, seed: int) -> None:
    """Each by itself, at every place of the protocol."""
    recordings = [SCENARIOS[name].record(tmp_path / "recorded") for name in CHANGES]
    missed = what_is_missed(recordings, checker, seed, place_in_protocol, lambda call: not recovers(call))
    assert len(missed) > 15
    for called, violation in missed.items():
        excused = any(called.replace(" of checkpoints", "").startswith(unneeded) for unneeded in UNNEEDED)
        assert (violation is None) == excused, called


def killed(folder: Path, name: str, disturbance: Disturbance = undisturbed) -> Sequence[Recording]:
    """What an attempt does with what any death of the attempt before it has left."""
    return list(SCENARIOS[name].record(folder / "recorded").killed(folder / "killed", disturbance))


def test_every_fsync_of_a_recovery_is_needed(checker: Checker, tmp_path: Path, seed: int) -> None:
    """By the functions that lead to it: not each is needed after each death."""
    names = ("the first checkpoint", AGAIN, "a prune")
    recordings = [recorded for name in names for recorded in killed(tmp_path, name)]
    missed = what_is_missed(recordings, checker, seed, site, recovers)
    assert len(missed) >= 3
    assert [called for called, violation in missed.items() if violation is None] == []


@pytest.mark.parametrize("name", CHANGES)
def test_every_rename_is_needed(name: str, checker: Checker, tmp_path: Path, seed: int) -> None:
    """Each by itself: it says that it is done, and is not."""
    renames = calls(SCENARIOS[name].record(tmp_path / "recorded"), "rename")
    assert renames
    for number, (_, call) in enumerate(renames, start=1):
        recorded = SCENARIOS[name].record(tmp_path / "recorded", failing("rename", number, "skipped"))
        assert recorded.error or checker.first_violation(recorded, random.Random(seed)), f"nobody misses: {call}"


def test_every_rename_of_a_recovery_is_needed(checker: Checker, tmp_path: Path, seed: int) -> None:
    """They bring back an older version that was withdrawn."""
    missed: dict[str, bool] = {}
    for number in (1, 2):
        without = killed(tmp_path, AGAIN, failing("rename", number, "skipped"))
        for whole, crippled in zip(killed(tmp_path, AGAIN), without, strict=True):
            renames = [call for _, call in calls(whole, "rename")]
            if len(renames) >= number and recovers(renames[number - 1]):
                violation = crippled.error or checker.first_violation(crippled, random.Random(seed))
                target = renames[number - 1].target
                missed[target] = missed.get(target, False) or violation is not None
    assert missed == {"checkpoints/step-000200": True, "checkpoints/step-000200.json": True}
