"""How the built-in policies are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hostcore_hookspecs import Job, Plan, PluginRef, Principal, Resources

_TRAINER = PluginRef(kind="trainer", name="good", value="good:Trainer", dist="good-trainers", version="1.0")


class Lists:
    """A plan with nothing but what is on the lists, and one with an image that is not."""

    principal = Principal(name="ada", groups=("research",))
    allowed = Plan(
        job=Job(
            trainer="good",
            dataset={"source": "parquet", "parquet_paths": ["s3://data/flights/2024.parquet"]},
            checkpoint_base_uri="s3://runs/ada",
            resources=Resources(image="registry.example/trainer:1.4", namespace="research"),
        ),
        plugins=[_TRAINER],
    )
    denied = Plan(
        job=Job(trainer="good", resources=Resources(image="registry.example.evil/trainer:1.4")), plugins=[_TRAINER]
    )


_SETTINGS: Mapping[str, Any] = {
    "trainers": ["good-trainers/*", "mine"],
    "images": ["registry.example/*"],
    "namespaces": ["research"],
    "data_uris": ["s3://data/*"],
    "checkpoint_uris": ["s3://runs/*"],
    "groups": ["research"],
}

EXAMPLES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "allow-list": lambda tmp_path: {"harness": Lists, "settings": dict(_SETTINGS)}
}
