"""The example trainer char_lm on two ranks, in each way that it can be parallel, and on from their checkpoints."""

import json
import os
from pathlib import Path
from typing import Any

import attrs
import pytest
from char_lm.prepare_data import prepare
from fork_server import ran

STRATEGIES = ["ddp", "fsdp2", "replicate"]
STEPS = 20
#: Sums in another order, 20 steps long.
TOLERANCE = 2e-3


@attrs.frozen
class Workplace:
    """A folder with the prepared text, in which jobs are run."""

    folder: Path

    def run(self, run_id: str, ranks: int, strategy: str, *options: str) -> "Run":
        """Run the small job to its end. Without dropout, which would draw other numbers on another number of ranks."""
        job = {
            "run_id": run_id,
            "trainer": "char_lm",
            "hyperparams": {
                "context": 64,
                "layers": 2,
                "heads": 2,
                "width": 64,
                "dropout": 0.0,
                "learning_rate": 0.01,
                "strategy": strategy,
                "sample_length": 16,
            },
            "dataset": {"parquet_paths": ["data/train.parquet"], "batch_size": 4, "shuffle": True},
            "validation": {"parquet_paths": ["data/validation.parquet"], "batch_size": 32},
            "test": {"parquet_paths": ["data/test.parquet"], "batch_size": 32},
            "global_batch_size": 8,  # one rank takes two batches for a step, two ranks one each
            "devices": ["cpu"] * ranks,
            "max_steps": STEPS,
            "metric_every": 1,
            "validate_every": STEPS,
            "checkpoint_every": STEPS // 2,
            "samples": [{"prompt": "The ", "seed": 0}],
            "sample_every": STEPS,
            "terminal": False,
        }
        path = self.folder / f"{run_id}.json"
        path.write_text(json.dumps(job))
        # As two ranks have it on two processors; one rank alone would begin two threads, which wait for each other.
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = ran(["run", path, *options], cwd=self.folder, env=environment, text=True, timeout=900)
        assert ended.returncode == 0, ended.stderr
        return Run(self.folder / "runs" / run_id)


@attrs.frozen
class Run:
    """A run that has ended."""

    folder: Path

    @property
    def losses(self) -> dict[int, float]:
        """By step."""
        events = [json.loads(line) for line in (self.folder / "logs/events.jsonl").read_text().splitlines()]
        return {one["step"]: one["metrics"]["train/loss"] for one in events if one["event"] == "metrics"}

    @property
    def metrics(self) -> dict[str, float]:
        result: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return dict(result["metrics"])

    @property
    def sample(self) -> str:
        return (self.folder / f"samples/step-{STEPS:06d}/0/sample.txt").read_text()


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    folder = tmp_path_factory.mktemp("char_lm")
    prepare(folder / "data")
    return Workplace(folder)


@pytest.fixture(scope="module")
def alone(workplace: Workplace) -> Run:
    """The run on one rank that the others are held against."""
    return workplace.run("alone", 1, "ddp")


@pytest.fixture(scope="module", params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def together(workplace: Workplace, strategy: str) -> Run:
    return workplace.run(strategy, 2, strategy)


def test_two_ranks_learn_what_one_rank_learns(alone: Run, together: Run) -> None:
    assert together.losses[STEPS] < 0.7 * together.losses[1]
    assert together.losses == pytest.approx(alone.losses, rel=TOLERANCE)


def test_two_ranks_validate_and_test_like_one_rank(alone: Run, together: Run) -> None:
    names = {"val/loss", "val/bits_per_byte", "test/loss", "test/bits_per_byte"}
    assert names <= set(together.metrics)
    for name in names:
        assert together.metrics[name] == pytest.approx(alone.metrics[name], rel=TOLERANCE)


def test_a_sample_is_generated_by_all_ranks_and_written_once(together: Run) -> None:
    assert together.sample.startswith("The ")
    assert len(together.sample) > len("The ")


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_checkpoint_of_two_ranks_goes_on_with_the_same_losses(
    workplace: Workplace, strategy: str, together: Run, ranks: int
) -> None:
    checkpoint = together.folder / f"checkpoints/step-{STEPS // 2:06d}.json"
    resumed = workplace.run(f"{strategy}-on-{ranks}", ranks, strategy, "--from", str(checkpoint))
    assert set(resumed.losses) == set(range(STEPS // 2 + 1, STEPS + 1))
    expected = {step: loss for step, loss in together.losses.items() if step in resumed.losses}
    assert resumed.losses == pytest.approx(expected, rel=TOLERANCE)


def test_a_checkpoint_of_one_rank_goes_on_with_the_same_losses_on_two(
    workplace: Workplace, strategy: str, alone: Run
) -> None:
    checkpoint = alone.folder / f"checkpoints/step-{STEPS // 2:06d}.json"
    resumed = workplace.run(f"alone-to-{strategy}", 2, strategy, "--from", str(checkpoint))
    expected = {step: loss for step, loss in alone.losses.items() if step in resumed.losses}
    assert len(expected) == STEPS // 2
    assert resumed.losses == pytest.approx(expected, rel=TOLERANCE)
