"""What pip gets: the wheels and source distributions of the distributions, built and inspected."""

import configparser
import email.message
import email.parser
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import attrs
import pytest
from checkout import EXTENSION_NAMES, ROOT
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

from hostcore import __version__
from hostcore_hookspecs import API_VERSION, KINDS
from hostcore_hookspecs.kinds import (
    COMMANDS_GROUP,
    ENVIRONMENTS_GROUP,
    FUNCTIONS_GROUP,
    JOB_OPTIONS_GROUP,
    RANKS_GROUP,
    RUN_CLIENTS_GROUP,
    RUNS_CODE_GROUP,
    SERVICE_SECTIONS_GROUP,
)


@attrs.frozen(kw_only=True)
class Distribution:
    """One of ours, and what its build should bring."""

    folder: str
    package: str
    #: At the top of its source distribution, beside what hatchling always adds.
    sources: frozenset[str]
    #: Of our own distributions.
    requires: frozenset[str]
    version: str

    @property
    def source(self) -> Path:
        return ROOT / self.folder

    @property
    def package_files(self) -> set[str]:
        """Every file of the package in the checkout, caches apart, as a wheel names it."""
        files = (file.relative_to(self.source) for file in (self.source / self.package).rglob("*") if file.is_file())
        return {
            file.as_posix()
            for file in files
            if not any(part == "__pycache__" or part.startswith(".") for part in file.parts)
        }


DISTRIBUTIONS = (
    Distribution(
        folder="hookspecs",
        package="hostcore_hookspecs",
        sources=frozenset({"hostcore_hookspecs", "README.md", "LICENSE"}),
        requires=frozenset(),
        version=API_VERSION,
    ),
    Distribution(
        folder="toolkit",
        package="hostcore_toolkit",
        sources=frozenset({"hostcore_toolkit", "README.md", "LICENSE"}),
        requires=frozenset({"hostcore-hookspecs<2,>=1.1"}),
        version=__version__,
    ),
    Distribution(
        folder="builtin_plugins",
        package="hostcore_builtin_plugins",
        sources=frozenset({"hostcore_builtin_plugins", "README.md", "LICENSE"}),
        requires=frozenset({"hostcore-hookspecs<2,>=1"}),
        version=__version__,
    ),
    Distribution(
        folder=".",
        package="hostcore",
        sources=frozenset({"hostcore", "README.md", "CHANGELOG.md", "LICENSE"}),
        requires=frozenset(
            {
                "hostcore-hookspecs<1.4,>=1.1",
                f"hostcore-toolkit=={__version__}",
                f"hostcore-builtin-plugins=={__version__}",
            }
        ),
        version=__version__,
    ),
    *(
        Distribution(
            folder=f"extensions/{name}",
            package=f"hostcore_{name}",
            sources=frozenset({f"hostcore_{name}", "README.md", "LICENSE"}),
            requires=frozenset({f"hostcore-hookspecs<2,>={contract}", *(f"{one}=={__version__}" for one in needs)}),
            version=__version__,
        )
        for name, contract, needs in (
            ("chaos", "1", ["hostcore"]),
            ("conformance", "1.1", ["hostcore", "hostcore-chaos", "hostcore-toolkit"]),
            ("debug", "1.1", ["hostcore", "hostcore-toolkit"]),
            ("engines", "1", ["hostcore"]),
            ("environments", "1", ["hostcore"]),
            ("inspect", "1", ["hostcore"]),
            ("lightning", "1", ["hostcore", "hostcore-toolkit"]),
            ("service", "1", ["hostcore", "hostcore-inspect"]),
            ("sources", "1.1", ["hostcore-builtin-plugins", "hostcore-toolkit"]),
            ("sweeps", "1.1", ["hostcore", "hostcore-inspect"]),
            ("trackers", "1", ["hostcore-builtin-plugins"]),
            ("transformers", "1.1", ["hostcore", "hostcore-toolkit"]),
        )
    ),
)
#: These register nothing.
WITHOUT_ENTRY_POINTS = {"hostcore_hookspecs", "hostcore_toolkit"}
ALWAYS_IN_SDIST = {"PKG-INFO", "pyproject.toml", ".gitignore"}


@attrs.frozen(kw_only=True)
class Built:
    """A distribution, and its two files."""

    of: Distribution
    wheel: Path
    sdist: Path

    @property
    def wheel_names(self) -> set[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return set(archive.namelist())

    @property
    def info(self) -> str:
        return f"{self.of.package}-{self.of.version}.dist-info"

    def read(self, name: str) -> str:
        with zipfile.ZipFile(self.wheel) as archive:
            return archive.read(f"{self.info}/{name}").decode()

    @property
    def metadata(self) -> email.message.Message:
        return email.parser.Parser().parsestr(self.read("METADATA"))


def build(source: Path, target: Path, *builders: type[SdistBuilder] | type[WheelBuilder]) -> None:
    """What a frontend has the backend do, in this process."""
    for builder in builders:
        assert list(builder(str(source)).build(directory=str(target)))


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of all."""
    folder = tmp_path_factory.mktemp("dist")
    for distribution in DISTRIBUTIONS:
        build(distribution.source, folder, SdistBuilder, WheelBuilder)
    return folder


@pytest.fixture(params=DISTRIBUTIONS, ids=lambda each: each.package)
def built(request: pytest.FixtureRequest, dist: Path) -> Built:
    distribution = request.param
    stem = f"{distribution.package}-{distribution.version}"
    return Built(of=distribution, wheel=dist / f"{stem}-py3-none-any.whl", sdist=dist / f"{stem}.tar.gz")


def test_every_extension_is_one_of_the_distributions() -> None:
    assert {each.package for each in DISTRIBUTIONS} >= {f"hostcore_{name}" for name in EXTENSION_NAMES}


def test_the_build_makes_one_wheel_and_one_sdist_of_each(dist: Path) -> None:
    stems = [f"{each.package}-{each.version}" for each in DISTRIBUTIONS]
    expected = [f"{stem}{suffix}" for stem in stems for suffix in ("-py3-none-any.whl", ".tar.gz")]
    assert {file.name for file in dist.iterdir() if file.name != ".gitignore"} == set(expected)


def test_a_wheel_holds_its_package_and_nothing_else(built: Built) -> None:
    info = {"METADATA", "RECORD", "WHEEL", "licenses/LICENSE"}
    if built.of.package not in WITHOUT_ENTRY_POINTS:
        info.add("entry_points.txt")
    assert built.wheel_names == built.of.package_files | {f"{built.info}/{name}" for name in info}
    assert f"{built.of.package}/py.typed" in built.wheel_names
    assert built.read("licenses/LICENSE") == (ROOT / "LICENSE").read_text()
    assert built.metadata["License-Expression"] == "MIT"


def test_metadata_describes_the_distribution_and_says_what_is_required(built: Built) -> None:
    metadata = built.metadata
    assert metadata["Version"] == built.of.version
    assert metadata["Requires-Python"] == ">=3.11"
    required = [Requirement(text) for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text]
    own = {str(each) for each in required if each.name.startswith("hostcore")}
    assert own == built.of.requires
    assert metadata["Summary"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).startswith("#")


def test_every_entry_point_names_a_module_in_its_wheel(built: Built) -> None:
    if built.of.package in WITHOUT_ENTRY_POINTS:
        assert f"{built.info}/entry_points.txt" not in built.wheel_names
        return
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.read_string(built.read("entry_points.txt"))
    entries = {(group, name): value for group in parser.sections() for name, value in parser.items(group)}
    assert entries
    of_the_contract = {COMMANDS_GROUP, JOB_OPTIONS_GROUP, RUN_CLIENTS_GROUP, ENVIRONMENTS_GROUP}
    of_the_contract |= {FUNCTIONS_GROUP, RANKS_GROUP, RUNS_CODE_GROUP, SERVICE_SECTIONS_GROUP}
    of_the_contract |= {kind.group for kind in KINDS.values()}
    assert {group for group, _ in entries} <= {"console_scripts", "pytest11", *of_the_contract}
    for entry, value in entries.items():
        module = value.partition(":")[0].replace(".", "/")
        assert {f"{module}.py", f"{module}/__init__.py"} & built.wheel_names, entry


def test_a_source_distribution_holds_its_own_sources_only(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert {name.split("/")[0] for name in names} - ALWAYS_IN_SDIST == built.of.sources
    assert {name for name in names if name.startswith(f"{built.of.package}/")} == built.of.package_files


def test_a_wheel_built_from_the_sdist_has_the_same_content(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (unpacked,) = (tmp_path / "source").iterdir()
    build(unpacked, tmp_path, WheelBuilder)
    with zipfile.ZipFile(tmp_path / built.wheel.name) as again, zipfile.ZipFile(built.wheel) as first:
        assert {name: again.read(name) for name in again.namelist()} == {
            name: first.read(name) for name in first.namelist()
        }


@pytest.fixture(scope="session")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels installed, without what they need."""
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "--target", str(target), *map(str, dist.glob("*.whl"))], check=True)
    return target


def outside_the_checkout(installed: Path, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code with the wheels and what they need, and without this environment's editable installs.

    ``-S`` leaves out the ``.pth`` files that would bring the checkout back.
    """
    path = [str(installed), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    start = f"import sys; sys.path[:0] = {path!r}\n"
    command = [sys.executable, "-I", "-S", "-c", start + code]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def test_from_wheels_every_module_of_the_contract_imports_and_no_folder_of_the_checkout(
    installed: Path, tmp_path: Path
) -> None:
    code = """
import importlib, importlib.util, pkgutil, hostcore_hookspecs
for module in pkgutil.walk_packages(hostcore_hookspecs.__path__, "hostcore_hookspecs."):
    importlib.import_module(module.name)
print(hostcore_hookspecs.__file__)
print(*filter(importlib.util.find_spec, ["hookspecs", "toolkit", "builtin_plugins", "tests"]))
"""
    answer = outside_the_checkout(installed, code, tmp_path)
    assert answer.stderr == ""
    assert answer.stdout == f"{installed / 'hostcore_hookspecs/__init__.py'}\n\n"


def test_from_wheels_the_built_in_plugins_are_registered(installed: Path, tmp_path: Path) -> None:
    code = """
from importlib.metadata import entry_points
own = "hostcore-builtin-plugins"
print(*sorted(one.name for one in entry_points(group="hostcore.data_sources") if one.dist.name == own))
"""
    answer = outside_the_checkout(installed, code, tmp_path)
    assert answer.stdout.split() == ["arrow", "csv", "json", "mix", "mock", "parquet", "shards"]


def test_a_copy_of_the_checkout_in_a_path_with_spaces_builds(tmp_path: Path) -> None:
    copy = tmp_path / "with a space" / "hookspecs"
    shutil.copytree(ROOT / "hookspecs", copy, ignore=shutil.ignore_patterns("__pycache__"))
    build(copy, tmp_path, WheelBuilder)
    assert (tmp_path / f"hostcore_hookspecs-{API_VERSION}-py3-none-any.whl").is_file()
