"""The words in which faults are named, and where a range is drawn to."""

import pytest

from hostcore.errors import Errors
from hostcore_chaos.faults import ACTIONS, METHODS, Fault, Outage, check, faults_of, outages_of


def test_a_fault_is_an_action_and_a_place() -> None:
    assert faults_of(["sigterm@step=37", "kill@train_step=5..9,every,rank=3"]) == [
        Fault(text="sigterm@step=37", action="sigterm", point="step", first=37, last=37),
        Fault(
            text="kill@train_step=5..9,every,rank=3",
            action="kill", point="train_step", first=5, last=9, rank=3, every=True,
        ),
    ]  # fmt: skip


def test_an_outage_is_a_time() -> None:
    (outage,) = outages_of(["store-down@0.5s..60s,every"])
    assert outage == Outage(text="store-down@0.5s..60s,every", begin=0.5, end=60.0, every=True)


@pytest.mark.parametrize("action", sorted(ACTIONS.keys() - {"disk-full"}))
@pytest.mark.parametrize("point", ["step", "checkpoint", "saved", *METHODS])
def test_every_action_is_possible_at_every_place(action: str, point: str) -> None:
    check([f"{action}@{point}=1"])


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("", "ACTION@WHEN", "kill@step=37"),
        ("kill", "ACTION@WHEN", "kill@step=37"),
        ("kill@", "ACTION@WHEN", "kill@step=37"),
        ("kill@step=1@step=2", "ACTION@WHEN", "kill@step=37"),
        ("kill@step=1,", "ACTION@WHEN", "kill@step=37"),
        ("KILL@step=1", "no fault 'KILL'", "sigterm, sigint, sigusr1, kill, kill-supervisor"),
        ("explode@step=1", "no fault 'explode'", "store-down"),
        ("kill@step", "'step' is no place in a run", "step, checkpoint, saved, setup"),
        ("kill@step=-1", "'step=-1' is no place in a run", "NAME=N"),
        ("kill@step= 1", "'step= 1' is no place in a run", "NAME=N"),
        ("kill@step=٣", "'step=٣' is no place in a run", "NAME=N"),
        ("kill@stpe=1", "'stpe=1' is no place in a run", "step, checkpoint"),
        ("kill@data_sections=1", "is no place in a run", "step, checkpoint"),
        ("kill@30s..60s", "is no place in a run", "NAME=N"),
        ("kill@step=0", "has no number", "count from 1"),
        ("kill@step=5..4", "has no number", "not above its last"),
        ("kill@step=1,rank=-1", "'-1' is no rank", "count from 0"),
        ("kill@step=1,rank", "'' is no rank", "count from 0"),
        ("kill@step=1,ranks=1", "no option 'ranks'", "rank=R, every"),
        ("kill@step=1,every=yes", "every takes no value", "kill@step=37,every"),
        ("kill@step=1,rank=1,rank=2", "an option twice", "leave one out"),
        ("kill@checkpoint=1,rank=1", "committed by rank 0", "leave the rank out"),
        ("disk-full@step=1", "full for checkpoints", "disk-full@checkpoint=2"),
        ("store-down@step=3", "'step=3' is no time", "store-down@30s..60s"),
        ("store-down@60s..60s", "is no time", "BEGIN..END"),
        ("store-down@30..60", "is no time", "BEGIN..END"),
        ("store-down@30s..60s,rank=1", "no option 'rank'", "there are every"),
    ],
)
def test_what_is_wrong_is_told_with_what_would_be_right(text: str, says: str, hint: str) -> None:
    with pytest.raises(Errors) as caught:
        check([text])
    (error,) = caught.value.errors
    assert says in error.message
    assert hint in str(error.hint)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(Errors) as caught:
        faults_of(["kill@step=1", "explode@step=1", "store-down@1s..2s"])
    assert [error.pointer for error in caught.value.errors] == ["/faults/1", "/faults/2"]
    with pytest.raises(Errors) as caught:
        outages_of([])
    assert [error.pointer for error in caught.value.errors] == ["/faults"]


def test_a_range_is_drawn_from_the_seed_alone() -> None:
    (fault,) = faults_of(["kill@step=10..200"])
    drawn = [fault.number(seed, position) for seed in range(20) for position in range(5)]
    assert drawn == [fault.number(seed, position) for seed in range(20) for position in range(5)]
    assert all(10 <= number <= 200 for number in drawn)
    assert len(set(drawn)) > 50, "seeds, and equal faults of one job, draw apart"
    assert (fault.number(0, 0), fault.number(7, 1)) == (70, 51), "and so in every version"
