"""A step for which memory runs out is made again with its batch in parts, and the run goes on so."""

import itertools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest
import torch

import hostcore
from hostcore.worker.feed.splitting import cut, rows_of
from hostcore_hookspecs import Capabilities, Job, StepContext

#: Five steps an epoch.
MOCK = {"source": "mock", "num_rows": 50, "num_shards": 5, "batch_size": 10, "shuffle": True}
STEPS = 10
#: Where three rows fit: ten are halved to five, and to three.
PARTS = [3, 3, 3, 1]


@attrs.frozen
class Ran:
    """What a run did."""

    result: Any
    events: Sequence[Any]
    #: The step, and the rows of each part, of each call of ``train_step``.
    seen: Sequence[tuple[int, list[int]]]
    weights: Sequence[torch.Tensor]

    def named(self, name: str) -> list[Any]:
        return [event for event in self.events if event.name == name]

    @property
    def losses(self) -> list[float]:
        return [event.payload.metrics["train/loss"] for event in self.named("metrics")]

    @property
    def text(self) -> str:
        """Of the error that the run failed with, and its traceback."""
        return f"{self.result.error.message}\n{self.result.error.traceback}\n{self.result.error.hint}"


@pytest.fixture(scope="module")
def trainer(here: Path) -> ModuleType:
    """The module ``memory_trainer``, as jobs of this process import it."""
    import memory_trainer

    return memory_trainer


@pytest.fixture(scope="module")
def train(trainer: ModuleType) -> Callable[..., Ran]:
    """``train(fits=3, …)``: a run of all steps; ``preempt_at``: in which a machine is taken away on the way."""
    numbers = itertools.count()

    def start(kind: str = "Trainer", preempt_at: int = 0, keys: Any = None, **hyperparams: Any) -> Ran:
        job = {
            "trainer": f"memory_trainer:{kind}",
            "hyperparams": hyperparams,
            "dataset": MOCK,
            "max_steps": STEPS,
            "metric_every": 1,
            "terminal": False,
            "device": "cpu",
            "run_id": f"run-{next(numbers)}",
            **(keys or {}),
        }
        events: list[Any] = []
        for step in [preempt_at, 0] if preempt_at else [0]:
            trainer.PREEMPT_AT = step
            result = hostcore.run(job, on_event=events.append)
            assert not step or result.status == "preempted", result
        return Ran(result, events, trainer.SEEN[job["run_id"]], trainer.WEIGHTS[job["run_id"]])

    return start


@pytest.fixture(scope="module")
def whole(train: Callable[..., Ran]) -> Ran:
    """A run for which memory is enough."""
    return train()


@pytest.fixture(scope="module")
def split(train: Callable[..., Ran]) -> Ran:
    """A run for which memory is too little in its third step."""
    return train(fits=3, since=3)


def test_the_step_is_halved_until_it_fits_and_the_run_goes_on_so(split: Ran, whole: Ran) -> None:
    assert split.result.status == "succeeded"
    before = [(1, [10]), (2, [10])]
    tried = [(3, [10]), (3, [5, 5]), (3, PARTS)]
    assert split.seen == [*before, *tried, *((step, PARTS) for step in range(4, STEPS + 1))]
    (event,) = split.named("batch_split")
    said = event.payload
    assert (event.step, said.rows, said.micro_batch_rows, said.rank) == (3, 10, 3, 0)
    assert said.error == "OutOfMemoryError: CUDA out of memory. Tried to allocate 5 GiB."
    assert said.memory
    assert not whole.named("batch_split")
    assert split.losses == pytest.approx(whole.losses, rel=1e-12), "the mathematics is that of the whole batch"
    for one, other in zip(split.weights, whole.weights, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_a_resumed_run_takes_the_parts_that_were_found_and_is_the_same_bit_for_bit(
    train: Callable[..., Ran], split: Ran
) -> None:
    resumed = train(fits=3, since=3, preempt_at=6)
    assert resumed.seen == split.seen, "no step runs out of memory a second time"
    assert resumed.losses == split.losses
    assert all(torch.equal(one, other) for one, other in zip(resumed.weights, split.weights, strict=True))
    assert len(resumed.named("batch_split")) == 1


def test_what_a_failed_try_has_drawn_leaves_no_trace(
    trainer: ModuleType, train: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = train(fits=3, since=3, dropout=0.5)
    monkeypatch.setattr(trainer, "DRAWS", 1000)
    other = train(fits=3, since=3, dropout=0.5)
    assert one.losses == other.losses


def test_batches_that_accumulate_are_each_cut(train: Callable[..., Ran]) -> None:
    keys = {"accumulate": 2, "max_steps": 4}
    both, cut = train(keys=keys), train(fits=4, since=2, keys=keys)
    assert [parts for _, parts in cut.seen] == [[10, 10], [10, 10], [5, 5, 5, 5], *[[*PARTS, *PARTS]] * 3]
    assert cut.losses == pytest.approx(both.losses, rel=1e-12)


def test_fp16_goes_on_with_its_scaler(train: Callable[..., Ran]) -> None:
    keys = {"precision": "fp16"}
    one, other = train(keys=keys), train(fits=3, since=3, keys=keys)
    assert other.result.status == "succeeded"
    assert other.losses == pytest.approx(one.losses, rel=0.02)


def test_what_a_callback_recorded_around_a_failed_try_is_recorded_once(
    trainer: ModuleType, train: Callable[..., Ran]
) -> None:
    ran = train(fits=3, since=2, keys={"callbacks": ["memory_trainer:Watching"], "max_steps": 3})
    assert ran.result.status == "succeeded"
    assert [event.payload.metrics["parts"] for event in ran.named("metrics")] == [1, 4, 4]
    assert [type(one) is dict or len(one) for one in trainer.Watching.batches] == [True, True, 4]


def test_when_not_even_one_row_fits_the_run_fails_with_the_error_itself(train: Callable[..., Ran]) -> None:
    ran = train(fits=-1, keys={"dataset": {**MOCK, "batch_size": 4}, "callbacks": ["oom-hint"]})
    assert [parts for _, parts in ran.seen] == [[4], [2, 2], [1, 1, 1, 1]]
    assert (ran.result.status, ran.result.error.type) == ("failed", "OutOfMemoryError")
    assert "not even a part of one row fits" in ran.text
    assert 'set "precision"' in ran.text or "torch.utils.checkpoint" in ran.text
    assert not ran.named("batch_split")


def test_an_update_that_has_begun_is_not_made_again(train: Callable[..., Ran]) -> None:
    ran = train(fits=3, where="update")
    assert (ran.result.status, len(ran.seen)) == ("failed", 1)
    assert "not made again with its batch in parts: the update had begun already" in ran.text


def test_other_errors_are_raised_as_they_are(train: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "OutOfMemoryError", ValueError)
    ran = train(fits=3)
    assert (ran.result.error.type, len(ran.seen)) == ("ValueError", 1)
    assert "in parts" not in ran.text


def test_a_trainer_that_does_not_say_when_its_update_begins_is_told_so(train: Callable[..., Ran]) -> None:
    ran = train(says=False)
    assert ran.result.status == "failed"
    assert "train_step returned at step 1 without a call of ctx.begin_update()" in ran.text


def test_columns_that_transform_batch_returns_are_cut(train: Callable[..., Ran], whole: Ran) -> None:
    cut = train("Transforming", fits=3, since=2)
    assert [parts for step, parts in cut.seen if step == 3] == [PARTS]
    assert cut.losses == pytest.approx(whole.losses, rel=1e-12)


def test_a_batch_whose_rows_are_not_known_is_not_cut(train: Callable[..., Ran]) -> None:
    ran = train("Packing", fits=3)
    assert (ran.result.status, len(ran.seen)) == ("failed", 1)
    assert "the rows of such a batch are not known" in ran.text


def test_rows_are_taken_of_record_batches_and_of_columns_of_one_length() -> None:
    columns = {"x": np.arange(5), "y": torch.arange(5), "names": list("abcde")}
    batch = pa.RecordBatch.from_pydict({"x": list(range(5))})
    assert (rows_of(columns), rows_of(batch)) == (5, 5)
    assert [one["names"] for one in cut(columns, 2)] == [["a", "b"], ["c", "d"], ["e"]]
    assert [one.column("x").to_pylist() for one in cut(batch, 3)] == [[0, 1, 2], [3, 4]]
    for other in (None, 3, {}, {"x": 3}, {"x": [1], "y": [1, 2]}, {"x": np.float32(1)}, np.arange(5), "abc"):
        assert rows_of(other) == 0


def test_the_allocator_of_the_cpu_is_heard(project: Any) -> None:
    """The real one: a process under a limit of its memory, in which four rows take more than is left."""
    shutil.copy(Path(__file__).with_name("memory_trainer.py"), project.path)
    keys = {"hyperparams": {"where": "real"}, "dataset": {**MOCK, "batch_size": 8}, "max_steps": 3}
    said = project.command("run", project.job(trainer="memory_trainer:Trainer", run_id="real", **keys))
    assert said.code == 0, said.err
    run = project.run("real")
    (event,) = [event for event in run.events if event["event"] == "batch_split"]
    assert (event["step"], event["rows"], event["micro_batch_rows"]) == (1, 8, 2)
    assert "DefaultCPUAllocator: can't allocate memory" in event["error"]


def test_a_context_made_by_hand_takes_both_calls() -> None:
    with pytest.raises(ValueError, match="split_on_oom needs accumulate=True"):
        Capabilities(split_on_oom=True)
    ctx = StepContext(job=Job())
    ctx.keep_batches_whole("its ranks exchange gradients")
    ctx.begin_update()
