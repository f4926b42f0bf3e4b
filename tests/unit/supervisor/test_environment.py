"""What builds the environment of a job: an extension, which may be missing, or something else."""

from pathlib import Path

import pytest

from hostcore.job.sections import EnvironmentSpec
from hostcore.plugins.discover import Discovered
from hostcore.plugins.extensions import Extension
from hostcore.supervisor.environment import UnusableEnvironment, job_python
from hostcore_hookspecs.kinds import ENVIRONMENTS_GROUP


def asked_of(*extensions: Extension) -> UnusableEnvironment:
    """The error of a job with requirements, where these are installed."""
    wanted, here = EnvironmentSpec(requirements=("numpy",)), Discovered(refs=(), extensions=extensions)
    with pytest.raises(UnusableEnvironment) as refused:
        job_python(wanted, here, lock=None, job_dir=Path(), tell=print)
    assert refused.value.pointer == "/environment"
    return refused.value


def test_without_an_extension_it_is_said_what_to_install() -> None:
    assert "pip install 'hostcore[environments]'" in (asked_of().hint or "")


def test_an_extension_that_builds_nothing_is_named() -> None:
    wrong = Extension(group=ENVIRONMENTS_GROUP, name="mine", dist="my-builder", version="1.0", value="builtins:dict")
    assert asked_of(wrong).message == "builtins:dict of my-builder 1.0 is no EnvironmentBuilder"
