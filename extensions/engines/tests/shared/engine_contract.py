"""What a run may rely on at every engine."""

import inspect
from pathlib import Path
from typing import Any, ClassVar

import curve_trainer
import pytest
from engine_runs import Engine, EngineRun
from package_index import Index, linked_index


class EngineContract:
    """Promises of all engines; a subclass has the fixture ``engine``."""

    #: What the engine needs to be told for two nodes, and for a run that is cancelled.
    TWO_NODES: ClassVar[dict[str, Any]] = {}
    CANCELLED: ClassVar[dict[str, Any]] = {}
    CANCELLED_CODE = 130

    @pytest.fixture(scope="class")
    def index(self, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Index:
        """An index with a trainer that is installed nowhere: one for each engine, whose environments lie beside it."""
        assert engine.path.is_dir()
        made = Index(linked_index(tmp_path_factory.mktemp("published")))
        made.publish("of-its-own", trainer="of-its-own", source=inspect.getsource(curve_trainer))
        return made

    @pytest.fixture(scope="class")
    def two_nodes(self, engine: Engine, index: Index) -> EngineRun:
        """A run of two nodes that has succeeded, in an environment of its own."""
        run = engine.submit(
            "two-nodes",
            trainer="of-its-own",
            environment={"requirements": ["of-its-own"]},
            global_batch_size=2,
            variables={"HOSTCORE_ENVIRONMENTS_DIR": str(engine.path / "of whoever submits")},
            resources={"num_nodes": 2, "env": index.environment, **self.TWO_NODES},
        )
        assert run.until("succeeded").exit_code == 0
        return run

    def test_two_nodes_train_one_model_as_the_ranks_of_one_run(self, two_nodes: EngineRun) -> None:
        assert two_nodes.world_sizes == [2]
        assert list(two_nodes.losses().values()) == pytest.approx(curve_trainer.curve(20))

    def test_the_end_of_a_run_is_told_by_its_log_and_by_the_command(self, engine: Engine, two_nodes: EngineRun) -> None:
        assert "succeeded  two-nodes" in two_nodes.log
        assert "succeeded" in engine.hostcore("status", "two-nodes").out

    def test_an_environment_is_built_once_for_both_nodes_and_by_them(
        self, engine: Engine, two_nodes: EngineRun, index: Index
    ) -> None:
        [python] = {two_nodes.python(rank) for rank in range(2)}
        assert python.is_relative_to(index.environment["HOSTCORE_ENVIRONMENTS_DIR"])
        assert two_nodes.log.count("environment: building it") == 1
        assert "environment:" not in two_nodes.submitted.err
        assert not Path(engine.path, "of whoever submits").exists()

    def test_a_cancelled_run_keeps_its_checkpoint_and_is_not_started_again(self, engine: Engine) -> None:
        slow = {"max_steps": 100_000, "hyperparams": {"seconds": 0.02}}
        run = engine.submit("cancelled", **slow, **self.CANCELLED)
        run.trains()
        run.cancel()
        status = run.until("cancelled")
        assert status.exit_code == self.CANCELLED_CODE
        assert run.result["attempt"] == 1
        assert run.result["final_checkpoint"] == f"checkpoints/step-{run.result['step']:06}"
        assert (run.path / run.result["final_checkpoint"]).is_dir()
        run.cancel()
        assert run.poll() == status
