"""The checkout itself: what lies where, and what the development set-up pins."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import EXTENSION_NAMES, ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OWN = {
    *("hostcore", "hostcore-hookspecs", "hostcore-toolkit", "hostcore-builtin-plugins"),
    *(f"hostcore-{name}" for name in EXTENSION_NAMES),
}
PROJECTS = [
    ROOT / "pyproject.toml",
    ROOT / "hookspecs/pyproject.toml",
    ROOT / "toolkit/pyproject.toml",
    ROOT / "builtin_plugins/pyproject.toml",
    *(ROOT / f"extensions/{name}/pyproject.toml" for name in EXTENSION_NAMES),
    *sorted(ROOT.glob("example_trainers/*/pyproject.toml")),
]


@pytest.mark.parametrize("project", PROJECTS, ids=lambda file: file.parent.name)
def test_a_distribution_folder_is_not_a_package(project: Path) -> None:
    assert project.is_file()
    assert not (project.parent / "__init__.py").exists()


def test_no_module_has_a_name_that_says_nothing() -> None:
    empty = {"utils", "util", "helpers", "helper", "common", "misc"}
    folders = (
        "hostcore",
        "hookspecs",
        "toolkit",
        "builtin_plugins",
        "extensions",
        "example_trainers",
        "benchmarks",
        "docs",
        "tests",
    )
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    assert files
    assert [str(file.relative_to(ROOT)) for file in files if {file.stem, file.parent.name} & empty] == []


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    pins = {}
    for requirement in requirements:
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", requirement
        pins[canonicalize_name(requirement.name)] = specifier.version
    assert len(pins) == len(requirements), "a distribution is pinned twice"
    return pins


def _requirements() -> Iterator[tuple[str, Requirement]]:
    for path in PROJECTS:
        project = tomllib.loads(path.read_text())
        extras = project["project"].get("optional-dependencies", {})
        texts = [
            *project["project"].get("dependencies", []),
            *(text for extra in extras.values() for text in extra),
            *project["build-system"]["requires"],
        ]
        yield from ((str(path.relative_to(ROOT)), Requirement(text)) for text in texts)


def test_torch_is_pinned_first() -> None:
    assert next(iter(_pins())) == "torch"


def test_pins_have_no_local_version() -> None:
    assert [name for name, version in _pins().items() if "+" in version] == []


def test_every_requirement_of_the_workspace_has_a_pin_that_satisfies_it() -> None:
    pins = _pins()
    wrong = [
        f"{file}: {requirement}"
        for file, requirement in _requirements()
        if (name := canonicalize_name(requirement.name)) not in OWN
        and not any(name.startswith(own) for own in OWN)
        and not (name in pins and requirement.specifier.contains(pins[name], prereleases=True))
    ]
    assert wrong == []
