"""Plugins that the project publishes beside the host: how they are installed, and the names that records have."""

import importlib.metadata

import pytest

from hostcore.plugins.discover import discover
from hostcore.plugins.published import EXTRAS, current_distribution, how_to_install, recorded_distribution
from hostcore.plugins.resolve import resolve
from hostcore_hookspecs.kinds import COMMANDS_GROUP, ENVIRONMENTS_GROUP, KINDS, RUN_CLIENTS_GROUP


def test_the_table_has_what_the_extensions_register_and_nothing_else() -> None:
    groups = {kind.group: kind.name for kind in KINDS.values()}
    groups |= {COMMANDS_GROUP: "command", RUN_CLIENTS_GROUP: "run client", ENVIRONMENTS_GROUP: "environment"}
    registered = {
        (groups[entry.group], entry.name)
        for name in (
            *("conformance", "engines", "environments", "lightning"),
            *("service", "sources", "trackers", "transformers"),
        )
        for entry in importlib.metadata.distribution(f"hostcore-{name}").entry_points
        if entry.group in groups
    }
    assert registered == set(EXTRAS)


def test_every_extra_of_the_table_is_one_of_the_host() -> None:
    assert set(EXTRAS.values()) <= set(importlib.metadata.metadata("hostcore").get_all("Provides-Extra") or [])


@pytest.mark.parametrize(
    ("kind", "name", "now"),
    [
        ("reporter", "mlflow", "hostcore-trackers"),
        ("uploader", "mlflow-artifacts", "hostcore-trackers"),
        ("launcher", "slurm", "hostcore-engines"),
    ],
)
def test_a_plugin_that_moved_is_found_by_its_former_name_and_recorded_by_it(kind: str, name: str, now: str) -> None:
    ref = resolve(f"hostcore-builtin-plugins/{name}", kind, discover())
    assert (ref.dist, ref.name) == (now, name)
    assert current_distribution("hostcore-builtin-plugins", kind, name) == now
    assert recorded_distribution(now, kind, name) == "hostcore-builtin-plugins"


@pytest.mark.parametrize("distribution", ["hostcore-builtin-plugins", "my-plugins"])
def test_a_plugin_that_stayed_keeps_its_distribution(distribution: str) -> None:
    assert current_distribution(distribution, "reporter", "jsonl") == distribution
    assert recorded_distribution(distribution, "reporter", "jsonl") == distribution


def test_a_plugin_of_another_distribution_is_not_ours_to_install() -> None:
    assert how_to_install("reporter", "my-plugins/mlflow") is None
    assert how_to_install("reporter", "mlflow") == "pip install 'hostcore[mlflow]'"
