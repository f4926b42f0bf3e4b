"""Drills that take a while: a run that everything happens to, and one that loses its store."""

import signal

from buckets import NAME, bucket, check_copy
from drill_runs import Workshop, drill, options
from ledger import ENDS, Ledger
from waiting import wait_until

FAILED, PREEMPTED, CANCELLED, KILLED = 1, 75, 130, -signal.SIGKILL


def test_a_run_that_everything_happens_to_comes_out_as_if_nothing_had(workshop: Workshop, unharmed: Ledger) -> None:
    # A checkpoint is committed in the background, at the latest before the next but one. A worker notices the death of
    # its supervisor some steps later.
    codes = {
        "kill@setup=1": FAILED,
        "kill@step=2": FAILED,
        "sigterm@step=3": PREEMPTED,
        "kill@load_state_dict=1": FAILED,
        "sigusr1@step=4": PREEMPTED,
        "kill@checkpoint=5": FAILED,
        "hang@step=7": FAILED,
        "sigint@step=8": CANCELLED,
        "kill-all@saved=9": KILLED,
        "kill-supervisor@step=12": KILLED,
    }
    ledger, found = workshop.ledger("all"), []
    while not found or found[-1] != 0:
        assert len(found) <= len(codes), "a fault is injected once"
        found.append(workshop.run(drill("all", stall_seconds=15, grace_seconds=1), *options([*codes])))
        if found[-1] == KILLED and workshop.injected("all")[-1] == "kill-supervisor@step=12":
            ends = lambda: [one for one in ledger.told if one["event"] in ENDS and one["attempt"] == len(found)]  # noqa: E731
            wait_until(ends, "the worker to write a checkpoint and to end")
        ledger.check_checkpoints(keep=3)

    assert workshop.injected("all") == [*codes]
    assert found == [*codes.values(), 0]
    assert ledger.losses == unharmed.losses
    assert ledger.weights == unharmed.weights
    ledger.check_digest()
    ledger.check_numbers()
    told = [one for one in workshop.warned("all") if "injected" in one]
    assert sorted({one.split()[2] for one in told}) == sorted(codes), "each is in the log of the run"


def test_an_outage_of_the_store_loses_nothing(workshop: Workshop, unharmed: Ledger) -> None:
    with bucket() as store:
        access = {"key": "k", "secret": "s", "endpoint_url": f"http://127.0.0.1:{store.port}"}
        uploader = {"use": "fsspec", "uri": f"s3://{NAME}/base", "storage_options": access}
        outage = {**drill("outage", uploaders=[uploader]), "checkpoint_every": 6}
        assert workshop.run(outage, "--chaos", "store-down@0s..2s") == 0
        check_copy(store, "base/outage/framework=fault_trainer-Trainer", workshop.ledger("outage").path)
    assert workshop.injected("outage", "uploads") == ["store-down@0s..2s"]
    assert workshop.ledger("outage").losses == unharmed.losses
