"""The conda recipe that ``deploy/conda/recipe.py`` writes: what it says, and what rattler-build makes of it.

No channel of conda can be reached here. A channel of the test's own stands in for conda-forge while packages are built:
its ``python`` is this interpreter, its ``pip`` and ``hatchling`` those of this environment.
"""

import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml
from checkout import ROOT
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from hostcore import __version__
from hostcore_hookspecs.api_version import API_VERSION

SCRIPT = ROOT / "deploy/conda/recipe.py"
PROJECTS = {
    document["project"]["name"]: document["project"]
    for pattern in (
        "pyproject.toml",
        "hookspecs/pyproject.toml",
        "toolkit/pyproject.toml",
        "builtin_plugins/pyproject.toml",
        "extensions/*/*.toml",
    )
    for file in ROOT.glob(pattern)
    for document in [tomllib.loads(file.read_text())]
}
#: Of conda's names, those that are not spelled as the Python Package Index spells them.
PYPI_NAMES = {
    "matplotlib-base": "matplotlib",
    "python-duckdb": "duckdb",
    "python-kubernetes": "kubernetes",
    "pytorch": "torch",
    "redis-py": "redis",
}


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe, where its ``../..`` is the repository."""
    written = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=True)
    place = tmp_path_factory.mktemp("checkout")
    (place / "deploy/conda").mkdir(parents=True)
    for name in ("hookspecs", "toolkit", "builtin_plugins", "hostcore", "extensions"):
        shutil.copytree(
            ROOT / name, place / name, ignore=shutil.ignore_patterns("tests", "__pycache__", "build", "dist")
        )
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, place)
    (place / "deploy/conda/recipe.yaml").write_text(written.stdout)
    return place / "deploy/conda/recipe.yaml"


@pytest.fixture(scope="module")
def outputs(recipe_file: Path) -> Mapping[str, Any]:
    return {one["package"]["name"]: one for one in yaml.safe_load(recipe_file.read_text())["outputs"]}


def as_pip_says(lines: list[str]) -> set[tuple[str, SpecifierSet]]:
    """Requirements of conda, as names and versions of the Python Package Index."""
    pairs = [line.partition(" ") for line in lines]
    return {(canonicalize_name(PYPI_NAMES.get(name, name)), SpecifierSet(version)) for name, _, version in pairs}


def test_every_distribution_is_a_package_of_its_version(outputs: Mapping[str, Any]) -> None:
    assert set(outputs) == set(PROJECTS)
    versions = {name: one["package"]["version"] for name, one in outputs.items()}
    assert versions == {**dict.fromkeys(PROJECTS, __version__), "hostcore-hookspecs": API_VERSION}


@pytest.mark.parametrize("name", sorted(PROJECTS))
def test_a_package_requires_what_pip_installs(outputs: Mapping[str, Any], name: str) -> None:
    unix, python, *run = outputs[name]["requirements"]["run"]
    assert (unix, python) == ("__unix", "python >=${{ python_min }}")
    wanted = [Requirement(text) for text in PROJECTS[name]["dependencies"]]
    assert as_pip_says(run) == {(canonicalize_name(one.name), one.specifier) for one in wanted}


@pytest.mark.parametrize("name", sorted(PROJECTS))
def test_what_extras_bring_is_held_to_its_version(outputs: Mapping[str, Any], name: str) -> None:
    extras = PROJECTS[name].get("optional-dependencies", {})
    texts = [
        text for extra, of_extra in extras.items() if extra not in ("docs", "test", "test-long") for text in of_extra
    ]
    wanted = {(canonicalize_name(one.name), one.specifier) for one in map(Requirement, texts) if one.name != name}
    needed = as_pip_says(outputs[name]["requirements"]["run"][2:])
    assert as_pip_says(outputs[name]["requirements"].get("run_constraints", [])) == wanted - needed


@attrs.frozen
class Channel:
    """A folder that rattler-build takes for a channel."""

    folder: Path
    records: dict[str, dict[str, Any]] = attrs.field(factory=lambda: {"linux-64": {}, "noarch": {}})

    def add(self, name: str, version: str, files: Path, *, subdir: str = "noarch") -> None:
        """A package with some files."""
        import rattler_build

        noarch = {"noarch": "python"} if subdir == "noarch" else {}
        depends = ["python"] if noarch else []
        made = rattler_build.assemble_package(
            name=name,
            version=version,
            target_platform=subdir,
            build_string="0",
            output_dir=self.folder,
            files_dir=files,
            depends=depends,
            compression_level=1,
            **noarch,  # type: ignore[arg-type]
        )
        (self.folder / subdir).mkdir(exist_ok=True)
        place = Path(shutil.move(str(made.path), self.folder / subdir / Path(made.path).name))
        content = place.read_bytes()
        self.records[subdir][place.name] = {
            "name": name,
            "version": version,
            "build": "0",
            "build_number": 0,
            "subdir": subdir,
            "depends": depends,
            "sha256": hashlib.sha256(content).hexdigest(),
            "size": len(content),
            **noarch,
        }

    def index(self) -> None:
        for subdir, records in self.records.items():
            repodata = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": records, "repodata_version": 1}
            (self.folder / subdir).mkdir(exist_ok=True)
            (self.folder / subdir / "repodata.json").write_text(json.dumps(repodata))


def this_python(folder: Path) -> Path:
    """An environment of this interpreter that has nothing else, as the files of a package."""
    base = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}").resolve()
    (folder / "bin").mkdir(parents=True)
    for name in ("python", "python3", f"python3.{sys.version_info.minor}"):
        (folder / "bin" / name).symlink_to(base)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    return folder


def of_this_environment(folder: Path, *names: str) -> Path:
    """What pip has installed of some distributions."""
    for name in names:
        for file in importlib.metadata.files(name) or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                (folder / "site-packages" / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), folder / "site-packages" / file)
    return folder


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("files")
    made = Channel(tmp_path_factory.mktemp("channel"))
    version = ".".join(map(str, sys.version_info[:3]))
    made.add("python", version, this_python(folder / "python"), subdir="linux-64")
    builds = ("hatchling", "packaging", "pathspec", "pluggy", "trove-classifiers")
    for names in (("pip",), builds):
        made.add(names[0], importlib.metadata.version(names[0]), of_this_environment(folder / names[0], *names))
    made.index()
    return made.folder.as_uri()


@pytest.fixture(scope="module")
def packages(recipe_file: Path, channel: str, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The packages that rattler-build makes of the recipe."""
    if os.environ.get("CI") != "true":
        pytest.importorskip("rattler_build", reason="rattler-build is not installed: pip install py-rattler-build")
    import rattler_build

    minor = f"3.{sys.version_info.minor}"
    text = recipe_file.read_text().replace(
        "python_min: '3.11'", f"python_min: '{minor}'"
    )  # the only one of the channel
    recipe_file.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        # The interpreter of the channel is none that other builds of this machine should find.
        patch.setenv("RATTLER_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        built = rattler_build.Stage0Recipe.from_file(recipe_file).run_build(
            tool_config=rattler_build.ToolConfiguration(use_sharded=False, use_zstd=False, use_bz2=False),
            output_dir=tmp_path_factory.mktemp("built"),
            channels=[channel],
            package_format="tar.bz2",
        )
    return {one.name: Path(package) for one in built for package in one.packages}


def test_rattler_build_makes_all_packages_and_hostcore_runs_from_them(
    packages: Mapping[str, Path], tmp_path: Path
) -> None:
    assert set(packages) == set(PROJECTS)
    for package in packages.values():
        with tarfile.open(package) as archive:
            archive.extractall(tmp_path, filter="data")
    # What they require comes from this environment, behind them on the path; hostcore itself does not.
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site-packages")}
    asked = [sys.executable, "-m", "hostcore"]
    found = subprocess.run(
        [*asked, "plugins", "--json"], cwd=tmp_path, env=environment, capture_output=True, check=True
    )
    assert {one["name"] for one in json.loads(found.stdout)["plugins"]} >= {
        "terminal",
        "mlflow",
        "slurm",
        "transformers",
    }
    where = "import hostcore, hostcore_trackers; print(hostcore.__file__, hostcore_trackers.__file__)"
    told = subprocess.run(
        [sys.executable, "-c", where], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert all(Path(file).is_relative_to(tmp_path / "site-packages") for file in told.stdout.split())


def test_a_package_says_what_it_requires_and_which_command_it_has(packages: Mapping[str, Path]) -> None:
    with tarfile.open(packages["hostcore"]) as archive:
        index = json.load(archive.extractfile("info/index.json"))  # type: ignore[arg-type]
        link = json.load(archive.extractfile("info/link.json"))  # type: ignore[arg-type]
        assert any(name.startswith("info/licenses/") for name in archive.getnames())
    assert (index["noarch"], index["version"]) == ("python", __version__)
    assert f"hostcore-builtin-plugins =={__version__}" in index["depends"]
    assert "__unix" in index["depends"]
    assert link["noarch"]["entry_points"] == ["hostcore = hostcore.cli:main"]
