"""A run whose workers have an environment of their own, on a real Ray cluster."""

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


@pytest.mark.parametrize("nodes", [1, 2])
def test_an_environment_is_built_once_and_by_the_nodes(folder: Any, index: Index, nodes: int) -> None:
    run_id = f"on-{nodes}"
    submitted = folder.submit(
        run_id,
        trainer="of-its-own",
        environment={"requirements": ["of-its-own"]},
        resources={"num_nodes": nodes, "cpus_per_node": 1, "env": index.environment},
    )
    assert submitted.returncode == 0, submitted.stderr
    assert folder.ended(run_id)["status"] == "succeeded", folder.log(run_id)
    assert "environment:" not in submitted.stderr
    logs = sorted((folder.run(run_id) / "logs").glob("rank-?.attempt-1.log"))
    assert len(logs) == nodes
    pythons = {log.read_text().splitlines()[0] for log in logs}
    assert len(pythons) == 1
    assert Path(pythons.pop()).is_relative_to(index.environment["HOSTCORE_ENVIRONMENTS_DIR"])
    assert folder.log(run_id).count("environment: building it") == 1
