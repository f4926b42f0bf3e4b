"""What builds the environment of a job: an extension, which may be missing, or something else; and its Python."""

import sys
from pathlib import Path
from typing import Any

import pytest

from hostcore.job.sections import EnvironmentSpec
from hostcore.plugins.installed import Discovered, Extension
from hostcore.supervisor import environment as environment_module
from hostcore.supervisor.environment import BuiltEnvironment, EnvironmentBuilder, UnusableEnvironment, job_python
from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs.kinds import ENVIRONMENTS_GROUP


def asked_of(*extensions: Extension) -> UnusableEnvironment:
    """The error of a job with requirements, where these are installed."""
    wanted, here = EnvironmentSpec(requirements=("numpy",)), Discovered(refs=(), extensions=extensions)
    with pytest.raises(UnusableEnvironment) as refused:
        job_python(wanted, here, lock=None, job_dir=Path(), tell=print)
    assert refused.value.pointer == "/environment"
    return refused.value


def test_without_an_extension_it_is_said_what_to_install() -> None:
    assert install_command("environments") in (asked_of().hint or "")


def test_an_extension_that_builds_nothing_is_named() -> None:
    wrong = Extension(group=ENVIRONMENTS_GROUP, name="mine", dist="my-builder", version="1.0", value="builtins:dict")
    assert asked_of(wrong).message == "builtins:dict of my-builder 1.0 is no EnvironmentBuilder"


class OnAFullDisk(EnvironmentBuilder):
    """Lets the system's own error through."""

    def build(self, *_: Any, **__: Any) -> BuiltEnvironment:
        raise OSError(28, "No space left on device")


def test_what_the_system_says_to_a_builder_is_told_as_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_module, "load_extension", lambda *_: OnAFullDisk)
    mine = Extension(group=ENVIRONMENTS_GROUP, name="mine", dist="my-builder", version="1.0", value="mine:Builder")
    told = "my-builder 1.0 cannot build the environment: [Errno 28] No space left on device"
    assert asked_of(mine).message == told


@pytest.mark.parametrize("safe_path", ["", "1"])
def test_all_places_are_known_where_an_environment_looks_for_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, safe_path: str
) -> None:
    """With PYTHONSAFEPATH the path does not begin with the working directory."""
    monkeypatch.setenv("PYTHONSAFEPATH", safe_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    wanted = EnvironmentSpec(interpreter=sys.executable)
    python, _ = job_python(wanted, Discovered(refs=()), lock=None, job_dir=Path(), tell=print)
    assert python.path[0] == str(tmp_path)
    assert "" not in python.path
