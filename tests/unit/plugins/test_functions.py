"""Functions that other distributions add to the package ``hostcore``."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import hostcore
from hostcore.plugins.extensions import BrokenExtension
from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs.kinds import FUNCTIONS_GROUP


def install(site: Any, distribution: str, source: str, *, name: str = "greet") -> None:
    module = distribution.replace("-", "_")
    site.install(
        distribution,
        modules={f"{module}.py": source},
        entry_points={FUNCTIONS_GROUP: {name: f"{module}:greet"}},
    )


def test_a_registered_function_is_an_attribute_of_the_package(site_here: Any) -> None:
    install(site_here, "greeter-a", "def greet(name): return f'hello {name}'")
    assert hostcore.greet("you") == "hello you"  # type: ignore[operator]


def test_a_name_that_two_distributions_register_is_an_error_that_names_both(site_here: Any) -> None:
    for distribution in ("greeter-b", "greeter-c"):
        install(site_here, distribution, "def greet(): pass")
    with pytest.raises(BrokenExtension, match=r"provided by: greeter-b 1\.0, greeter-c 1\.0"):
        _ = hostcore.greet


@pytest.mark.parametrize("source", ["raise ImportError('a part is missing')", "greet = 3"])
def test_a_broken_function_names_its_distribution(site_here: Any, source: str) -> None:
    install(site_here, "greeter-d", source)
    with pytest.raises(BrokenExtension, match=r"'greet' of greeter-d 1\.0 is broken"):
        _ = hostcore.greet


def test_a_function_of_the_project_that_is_not_installed_says_what_brings_it(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("hostcore", modules={}, entry_points={})
    monkeypatch.setattr(sys, "path", [str(site.path), str(Path(os.__file__).parent)])
    with pytest.raises(AttributeError, match=re.escape(f"`{install_command('sweeps')}` brings it")):
        _ = hostcore.sweep


def test_a_module_of_the_host_is_not_looked_for_among_functions(site_here: Any) -> None:
    assert not hasattr(hostcore, "no_such_function")
    assert not hasattr(hostcore, "__no_such_name__")
    install(site_here, "greeter-e", "def greet(): pass", name="verification")
    with pytest.raises(AttributeError):
        hostcore.__getattr__("verification")
