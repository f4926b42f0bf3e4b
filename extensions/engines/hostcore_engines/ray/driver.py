"""``python -m hostcore_engines.ray.driver FOLDER NODES RESOURCES LOG``: a launch on several nodes.

The entry point of a job of Ray's runs on one node. This one, which takes nothing there, has Ray set aside as many
nodes, each a different one, and starts a keeper on each, with an agent of torchrun. It prints what they print.
"""

import importlib
import json
import logging
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from hostcore_engines.keeper.folder import LaunchFolder
from hostcore_engines.keeper.following import Following
from hostcore_engines.keeper.keeping import ADDRESS_VARIABLE

#: Ray's names for what is set aside, and for what a task takes.
_BUNDLE: Final = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
_LOOK_SECONDS: Final = 1.0
_SAY_SECONDS: Final = 60.0
#: As a run ends that was cancelled.
_CANCELLED: Final = 130


def main(arguments: list[str]) -> int:
    """Run a launch to its end.

    :return: 0 if all agents have ended well.
    """
    folder, nodes, asked, log = Path(arguments[0]), int(arguments[1]), json.loads(arguments[2]), Path(arguments[3])
    ray = _ray()
    ray.init(address="auto", log_to_driver=False, logging_level=logging.WARNING)
    asked.setdefault("num_cpus", 1)
    bundle = {name: asked[key] for name, key in _BUNDLE.items() if asked.get(key)}
    group = ray.util.placement_group([bundle] * nodes, strategy="STRICT_SPREAD")
    if not _wait(ray, group, nodes, LaunchFolder(folder)):
        return _CANCELLED
    task = ray.remote(max_retries=0, **asked)(_keep)
    placed = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
    logs = [log.with_name(f"ray.{node}.log") for node in range(nodes)]
    with ExitStack() as followed:
        for each in logs:
            followed.enter_context(Following(each))
        ends = [
            task.options(scheduling_strategy=placed(placement_group=group, placement_group_bundle_index=node)).remote(
                str(folder), node, str(each)
            )
            for node, each in enumerate(logs)
        ]
        codes = [_code(ray, end, node) for node, end in enumerate(ends)]
    return next((code for code in codes if code), 0)


def _ray() -> Any:
    """Ray, which the cluster has: this module runs nowhere else."""
    importlib.import_module("ray.util.scheduling_strategies")
    return importlib.import_module("ray")


def _wait(ray: Any, group: Any, nodes: int, folder: LaunchFolder) -> bool:
    """Wait until the nodes are there; whether it was not cancelled before."""
    said = float("-inf")
    while not group.wait(_LOOK_SECONDS):
        if folder.cancelled() is not None:
            return False
        if time.monotonic() - said > _SAY_SECONDS:
            said = time.monotonic()
            alive = sum(node["Alive"] for node in ray.nodes())
            print(f"waiting for {nodes} nodes that have what the job asks for; the cluster has {alive}", flush=True)
    return True


def _keep(folder: str, node: int, log: str) -> int:
    """Keep a node; runs on it, in a process of Ray's."""
    keeper = [sys.executable, "-P", "-m", "hostcore_engines.keeper"]
    address = importlib.import_module("ray").util.get_node_ip_address()
    return subprocess.run(
        [*keeper, folder, str(node), "--tee", log],
        check=False,
        stdout=subprocess.DEVNULL,
        env={**os.environ, ADDRESS_VARIABLE: address},
    ).returncode


def _code(ray: Any, end: Any, node: int) -> int:
    try:
        return int(ray.get(end))
    except ray.exceptions.RayError as error:
        print(f"node {node} was lost: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
