"""A run whose workers have an environment of their own, on a real Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from package_index import Index, linked_index


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """An index with a trainer that is installed nowhere."""
    made = Index(linked_index(tmp_path))
    made.publish("of-its-own", trainer="of-its-own")
    return made


def python_of(run: Any, rank: int) -> Path:
    """The Python that the worker of a rank has printed."""
    return Path((run.path / "logs" / f"rank-{rank}.attempt-1.log").read_text().splitlines()[0])


def test_an_environment_is_built_once_for_both_nodes_and_by_them(folder: Any, index: Index) -> None:
    run = folder.submit(
        "own",
        trainer="of-its-own",
        environment={"requirements": ["of-its-own"]},
        resources={"num_nodes": 2, "env": index.environment},
    )
    run.until("succeeded")
    assert python_of(run, 0) == python_of(run, 1)
    assert python_of(run, 0).is_relative_to(index.environment["HOSTCORE_ENVIRONMENTS_DIR"])
    assert run.log().count("environment: building it") == 1


def test_a_node_that_cannot_build_it_says_so_as_the_end_of_the_run(folder: Any, index: Index) -> None:
    run = folder.submit(
        "impossible",
        trainer="of-its-own",
        environment={"requirements": ["of-its-own==7"]},
        resources={"num_nodes": 1, "env": index.environment},
    )
    run.until("failed")
    assert "there is no version of of-its-own==7" in run.result["error"]["message"]
    assert run.result["error"]["type"] == "EnvironmentFailed"
