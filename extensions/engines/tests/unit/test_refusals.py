"""What an engine cannot do, and settings that make no sense, are refused before anything is started."""

from pathlib import Path
from typing import Any

import pytest
from engine_runs import launch_context

from hostcore_engines.ray.launcher import RayLauncher
from hostcore_engines.slurm.launcher import SlurmLauncher
from hostcore_engines.torchrun.launcher import TorchrunLauncher
from hostcore_hookspecs import HostcoreError

SETTINGS: dict[Any, list[tuple[dict[str, Any], str]]] = {
    TorchrunLauncher: [
        ({"hosts": ("-oProxyCommand=evil",)}, "/hosts/0"),
        ({"hosts": ("two words",)}, "/hosts/0"),
        ({"rendezvous": {"is_host": "1"}}, "/rendezvous/is_host"),
        ({"rendezvous": {"x": "1,is_host=1"}}, "/rendezvous/x"),
    ],
    SlurmLauncher: [
        ({"time_limit": "soon"}, "/time_limit"),
        ({"time_limit": "1:99"}, "/time_limit"),
        ({"partition": "a b"}, "/partition"),
        ({"constraint": 'a"b'}, "/constraint"),
        ({"qos": "high\n#SBATCH --wrap=x"}, "/qos"),
        ({"before": ("true", " ")}, "/before/1"),
        ({"options": ("-p gpu",)}, "/options/0"),
        ({"options": ("--exclusive", "--mail-user=a b")}, "/options/1"),
        ({"options": ("--exclusive\n#SBATCH --wrap=x",)}, "/options/0"),
        ({"options": ("--nodes=3",)}, "/options/0"),
        ({"options": ("--output=/dev/null",)}, "/options/0"),
        ({"options": ("--array=1-9",)}, "/options/0"),
    ],
    RayLauncher: [
        ({"address": "ray://head:10001"}, "/address"),
        ({"address": "http://me:secret@head"}, "/address"),
        ({"runtime_env": {"working_dir": "."}}, "/runtime_env/working_dir"),
    ],
}
#: Settings, resources, and where the mistake is.
JOBS: dict[Any, list[tuple[dict[str, Any], dict[str, Any], str]]] = {
    TorchrunLauncher: [
        ({"hosts": ("a",)}, {"num_nodes": 2}, "/resources/num_nodes"),
        ({"min_nodes": 3}, {"num_nodes": 2}, "/launcher/min_nodes"),
        ({}, {"image": "trainer:1"}, "/resources/image"),
        ({}, {"namespace": "ml"}, "/resources/namespace"),
    ],
    SlurmLauncher: [
        ({}, {"image": "trainer:1"}, "/resources/image"),
        ({}, {"namespace": "a b"}, "/resources/namespace"),
        ({}, {"env": {"SBATCH_QOS": "high"}}, "/resources/env/SBATCH_QOS"),
        ({}, {"env": {"a/b": ""}}, "/resources/env/a~1b"),
    ],
    RayLauncher: [
        ({}, {"image": "a:1"}, "/resources/image"),
        ({}, {"namespace": "b"}, "/resources/namespace"),
    ],
}


@pytest.mark.parametrize(
    ("launcher", "settings", "pointer"), [(cls, *row) for cls, rows in SETTINGS.items() for row in rows], ids=str
)
def test_settings_that_make_no_sense_are_refused(launcher: Any, settings: dict[str, Any], pointer: str) -> None:
    with pytest.raises(HostcoreError) as caught:
        launcher(settings=launcher.Settings(**settings))
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    ("launcher", "settings", "resources", "pointer"),
    [(cls, *row) for cls, rows in JOBS.items() for row in rows],
    ids=str,
)
def test_a_job_that_asks_for_what_the_engine_has_not_is_refused_in_the_plan(
    launcher: Any, settings: dict[str, Any], resources: dict[str, Any], pointer: str, tmp_path: Path
) -> None:
    ctx = launch_context(tmp_path, resources=resources, env=resources.get("env", {}))
    with pytest.raises(HostcoreError) as caught:
        launcher(settings=launcher.Settings(**settings)).plan(ctx)
    assert caught.value.pointer == pointer
