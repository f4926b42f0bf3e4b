"""Plugins that the project publishes beside the host: how they are installed, and the names that records have."""

import importlib.metadata
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from hostcore.plugins.errors import PluginError
from hostcore.plugins.installed import discover
from hostcore.plugins.published import EXTRAS, current_distribution, how_to_install, recorded_distribution
from hostcore.plugins.resolve import resolve
from hostcore_builtin_plugins.extras import install_command, pip_source
from hostcore_hookspecs.kinds import (
    COMMANDS_GROUP,
    ENVIRONMENTS_GROUP,
    FUNCTIONS_GROUP,
    JOB_OPTIONS_GROUP,
    KINDS,
    RANKS_GROUP,
    RUN_CLIENTS_GROUP,
)

#: All that the table is about.
_EXTENSIONS = (
    *("chaos", "conformance", "debug", "engines", "environments", "inspect", "lightning", "service"),
    *("sources", "sweeps", "trackers", "transformers"),
)


def test_the_table_has_what_the_extensions_register_and_nothing_else() -> None:
    groups = {kind.group: kind.name for kind in KINDS.values()}
    groups |= {COMMANDS_GROUP: "command", RUN_CLIENTS_GROUP: "run client", ENVIRONMENTS_GROUP: "environment"}
    groups |= {JOB_OPTIONS_GROUP: "option", FUNCTIONS_GROUP: "function", RANKS_GROUP: "ranks"}
    registered = {
        (groups[entry.group], entry.name)
        for name in _EXTENSIONS
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


@pytest.mark.parametrize("name", ["trackio", "wandb"])
def test_a_plugin_that_came_after_the_move_has_no_former_name(name: str) -> None:
    former = f"hostcore-builtin-plugins/{name}"
    with pytest.raises(PluginError, match=f"did you mean '{name}'") as caught:
        resolve(former, "reporter", discover())
    assert caught.value.code == "plugin.unknown"
    assert how_to_install("reporter", former) is None
    for distribution in ("hostcore-trackers", "my-plugins"):
        assert recorded_distribution(distribution, "reporter", name) == distribution
    assert how_to_install("reporter", f"hostcore-trackers/{name}") == install_command(name)


def test_a_plugin_that_stayed_keeps_its_distribution_and_one_of_others_is_not_ours_to_install() -> None:
    for distribution in ("hostcore-builtin-plugins", "my-plugins"):
        assert current_distribution(distribution, "reporter", "jsonl") == distribution
        assert recorded_distribution(distribution, "reporter", "jsonl") == distribution
    assert how_to_install("reporter", "my-plugins/mlflow") is None
    assert how_to_install("reporter", "hostcore-builtin-plugins/mlflow") == install_command("mlflow")
    assert how_to_install("reporter", "mlflow") == install_command("mlflow")


@pytest.mark.parametrize(
    ("extra", "folders"),
    [
        ("mlflow", ["extensions/trackers[mlflow]"]),
        ("conformance", ["extensions/chaos", "extensions/conformance"]),
        ("s3", ["builtin_plugins[s3]"]),
        ("service", ["extensions/inspect", "extensions/service"]),
        ("slurm", ["extensions/engines"]),
    ],
)
def test_from_a_clone_its_folders_are_what_is_installed(extra: str, folders: list[str]) -> None:
    command, action, *named = shlex.split(install_command(extra))
    assert (command, action) == ("pip", "install")
    assert named == [str(ROOT / folder) for folder in folders]
    assert all(Path(folder.partition("[")[0], "pyproject.toml").is_file() for folder in named)


def test_hostcore_itself_is_installed_from_the_clone_by_the_interpreter_that_is_asked_for() -> None:
    folders = [str(ROOT / folder) for folder in ("hookspecs", "toolkit", "builtin_plugins", "")]
    assert shlex.split(install_command()) == ["pip", "install", *folders]
    assert shlex.split(install_command(python="/a b/python")) == ["/a b/python", "-m", "pip", "install", *folders]


def test_hostcore_that_came_as_a_package_is_installed_in_the_version_that_runs(site_here: Any) -> None:
    site_here.install("hostcore", version="7.8", modules={}, entry_points={})
    assert install_command("mlflow") == "pip install 'hostcore[mlflow]'"
    names = [one.partition("==") for one in install_command(python="/py").split()]
    assert names[:4] == [("/py", "", ""), ("-m", "", ""), ("pip", "", ""), ("install", "", "")]
    own = ["hostcore-hookspecs", "hostcore-toolkit", "hostcore-builtin-plugins", "hostcore"]
    assert [name for name, *_ in names[4:]] == own
    assert names[-1] == ("hostcore", "==", "7.8")


@pytest.mark.parametrize(
    ("recorded", "source"),
    [
        ({"url": "file:///home/me/my%20trainer", "dir_info": {}}, "'/home/me/my trainer'"),
        ({"url": "file:///home/me/trainer", "dir_info": {"editable": True}}, "-e /home/me/trainer"),
        ({"url": "file:///wheels/trainer-1.0-py3-none-any.whl", "archive_info": {}}, "my-trainer"),
        ({"url": "https://x.org/trainer.git", "vcs_info": {"vcs": "git", "commit_id": "1"}}, "my-trainer"),
        (None, "my-trainer"),
        ("no object", "my-trainer"),
    ],
)
def test_a_plugin_is_installed_again_from_the_folder_that_it_came_from(
    site_here: Any, recorded: Any, source: str
) -> None:
    info = site_here.install("my-trainer", modules={}, entry_points={})
    (info / "direct_url.json").write_text(json.dumps(recorded))
    assert pip_source("my-trainer") == source
    assert pip_source("no-such-thing-at-all") == "no-such-thing-at-all"


@pytest.mark.parametrize("name", ["hostcore-flights/late", "Hostcore_Flights/late"])
def test_an_unknown_distribution_with_a_name_of_hostcore_leads_to_no_index(name: str) -> None:
    with pytest.raises(PluginError) as caught:
        resolve(name, "trainer", discover())
    assert "pip install" not in (caught.value.hint or "")


def test_an_unknown_plugin_leads_to_no_name_that_anybody_could_take() -> None:
    with pytest.raises(PluginError) as caught:
        resolve("resnet-trainer", "trainer", discover())
    assert "pypi" not in (caught.value.hint or "")
    assert "hostcore resnet" not in (caught.value.hint or "")
    assert "hostcore.trainers" in (caught.value.hint or "")
