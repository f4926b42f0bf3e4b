"""Write a conda recipe of hostcore and its extensions, made from their ``pyproject.toml`` files.

    python deploy/conda/recipe.py >deploy/conda/recipe.yaml

For rattler-build, and for a feedstock of conda-forge. Versions and requirements are those of pip; conda has other names
for some of them, and no extras: what an extra would bring may be installed beside, and is held to its version.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

ROOT: Final = Path(__file__).resolve().parents[2]
#: The names of conda-forge that are not those of the Python Package Index.
CONDA_NAMES: Final = {
    "duckdb": "python-duckdb",
    "huggingface-hub": "huggingface_hub",
    "kubernetes": "python-kubernetes",
    "matplotlib": "matplotlib-base",
    "prometheus-client": "prometheus_client",
    "redis": "redis-py",
    "torch": "pytorch",
}
#: What is before the version in a requirement: a name, and extras.
_VERSION: Final = re.compile(r"^[\w.-]+\s*(\[[^\]]*\])?\s*")
#: Extras for those who work on hostcore.
_DEVELOPMENT: Final = {"docs", "test", "test-long"}


def projects() -> list[Path]:
    """The folders of the distributions, each behind those that it requires."""
    extensions = sorted(ROOT.glob("extensions/*/pyproject.toml"))
    return [ROOT / "hookspecs", ROOT / "toolkit", ROOT / "builtin_plugins", ROOT, *(file.parent for file in extensions)]


def read(folder: Path) -> dict[str, Any]:
    """The table ``project`` of a distribution, with its version."""
    document = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    project: dict[str, Any] = document["project"]
    if "version" not in project:
        named = document["tool"]["hatch"]["version"]["path"]
        lines = (folder / named).read_text(encoding="utf-8").splitlines()
        [line] = [one for one in lines if one.startswith(("__version__", "API_VERSION:"))]
        project["version"] = line.partition("=")[2].strip().strip('"')
    return project


def matching(requirements: Sequence[str], own: str) -> Iterator[str]:
    """Requirements as conda's match specifications, without extras; what a distribution requires of itself is left out.

    :raises ValueError: When one has a marker or a URL, which the recipe has no place for.
    """
    for text in requirements:
        one = Requirement(text)
        if one.marker or one.url:
            raise ValueError(f"{own} requires {text}: a recipe for all platforms cannot say that")
        name = canonicalize_name(one.name)
        if name != own:
            version = _VERSION.sub("", text)  # as it is written there: packaging sorts it
            yield f"{CONDA_NAMES.get(name, one.name)} {version}".strip()


def output(folder: Path) -> dict[str, Any]:
    """The package of a distribution."""
    project = read(folder)
    name = project["name"]
    extras = project.get("optional-dependencies", {})
    optional = [text for extra, texts in extras.items() if extra not in _DEVELOPMENT for text in texts]
    needed = list(matching(project["dependencies"], name))
    held = sorted(set(matching(optional, name)) - set(needed))
    place = "." if folder == ROOT else f"./{folder.relative_to(ROOT).as_posix()}"
    module = name.replace("-", "_")
    scripts = [f"{command} = {value}" for command, value in project.get("scripts", {}).items()]
    commands = [f"{command} --version" for command in project.get("scripts", {})]
    return {
        "package": {"name": name, "version": project["version"]},
        "build": {
            "noarch": "python",
            "script": f"${{{{ PYTHON }}}} -m pip install {place} -vv --no-deps --no-build-isolation",
            **({"python": {"entry_points": scripts}} if scripts else {}),
        },
        "requirements": {
            "host": ["python ${{ python_min }}.*", "pip", *matching(["hatchling>=1.27"], name)],
            "run": ["__unix", "python >=${{ python_min }}", *needed],
            **({"run_constraints": held} if held else {}),
        },
        "tests": [
            {"python": {"imports": [module], "pip_check": True, "python_version": "${{ python_min }}.*"}},
            *([{"script": commands}] if commands else []),
        ],
        "about": {"summary": project["description"], "license": project["license"], "license_file": "LICENSE"},
    }


def recipe() -> Mapping[str, Any]:
    """The whole recipe."""
    return {
        "schema_version": 1,
        "context": {"version": read(ROOT)["version"], "python_min": read(ROOT)["requires-python"].removeprefix(">=")},
        "recipe": {"name": "hostcore-distributions", "version": "${{ version }}"},
        "source": {"path": "../.."},
        "build": {"number": 0},
        "outputs": [output(folder) for folder in projects()],
    }


if __name__ == "__main__":
    yaml = YAML()
    yaml.width = 200
    yaml.dump(recipe(), sys.stdout)
