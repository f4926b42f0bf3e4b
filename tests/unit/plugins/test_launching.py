"""Calling a launcher: what it raises on purpose is told as it is, anything else as its own failure."""

from pathlib import Path
from typing import Any

import pytest

from hostcore.job.sections import ComponentUse
from hostcore.plugins.errors import PluginError
from hostcore.plugins.installed import discover
from hostcore.plugins.launching import JobLauncher, launcher_of
from hostcore_hookspecs import Job, LaunchContext, LaunchHandle, TransientError

SOURCE = """
    from hostcore_hookspecs import LaunchHandle, LaunchPlan, TransientError

    class Cloud:
        def plan(self, ctx): return LaunchPlan(summary="a pod")
        def launch(self, ctx): raise TransientError("the cloud is busy")
        def poll(self, handle): return {}["status"]
        def cancel(self, handle, grace_seconds): pass
        def read_logs(self, handle, since): pass
"""


@pytest.fixture
def launcher(site_here: Any) -> JobLauncher:
    """The launcher ``cloud``."""
    site_here.install(
        "clouds", modules={"clouds.py": SOURCE}, entry_points={"hostcore.launchers": {"cloud": "clouds:Cloud"}}
    )
    return launcher_of(ComponentUse(use="cloud", settings={}), discover(), job_dir=Path())


def test_an_error_of_the_contract_names_the_launcher(launcher: JobLauncher) -> None:
    context = LaunchContext(job=Job(), job_path="/job.json", run_dir="/run", command=[], env={}, log=lambda _: None)
    assert launcher.plan(context).summary == "a pod"
    with pytest.raises(TransientError, match="the cloud is busy") as caught:
        launcher.launch(context)
    assert caught.value.plugin == "cloud (clouds 1.0)"


def test_any_other_exception_is_shown_with_its_own_traceback(launcher: JobLauncher) -> None:
    with pytest.raises(PluginError, match="KeyError: 'status'") as caught:
        launcher.poll(LaunchHandle(launcher="cloud", id="1"))
    assert (caught.value.code, caught.value.pointer) == ("plugin.launcher", "/launcher")
    assert caught.value.traceback is not None
    assert "clouds.py" in caught.value.traceback
