"""Contract 1.0, later ones made of it as its authors would make them, and plugins for each.

They are the present contract under these versions: what was added since is in all of them, and no plugin uses it.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from checkout import ROOT
from command_line import Said

from hostcore_hookspecs import API_VERSION

HERE = Path(__file__).resolve().parent
HOOKSPECS = ROOT / "hookspecs"

_NEW_HOOK = '''

@hookspec
def on_run_archived(run_state: RunState) -> None:
    """Called once the run was archived.

    :param run_state: Where the run stands.
    """
'''
_DEPRECATED = {
    "ARGUMENTS": '("callback", "on_stop_requested", "requested_by"): Deprecation('
    'since="1.1.0", removed_in="1.3.0", instead="read run_state.stop_requests[-1].requested_by")',
    "NAMES": '"MetricPoint": Deprecation('
    'since="1.1.0", removed_in="1.3.0", instead="read run_state.metrics", module="run_state")',
}


def make_contract(folder: Path, version: str) -> Path:
    """The source of a contract: 1.0.0, 1.1.0 that adds and deprecates, and from 1.3.0 on what was deprecated is gone.

    :return: ``folder``, from which pip can install it.
    """
    shutil.copytree(HOOKSPECS, folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    package = folder / "hostcore_hookspecs"
    _change(package / "api_version.py", f'API_VERSION: Final = "{API_VERSION}"', f'API_VERSION: Final = "{version}"')
    if version == "1.0.0":
        return folder
    lifecycle = package / "lifecycle.py"
    _change(
        lifecycle,
        "def on_train_end(run_state: RunState, ctx: StepContext)",
        "def on_train_end(run_state: RunState, ctx: StepContext, seconds: float | None = None)",
    )
    lifecycle.write_text(lifecycle.read_text() + _NEW_HOOK)
    _change(
        package / "trainer.py",
        "def train_step(prepared_batch: Any, state: Any, ctx: StepContext)",
        "def train_step(prepared_batch: Any, state: Any, ctx: StepContext, position: int = -1)",
    )
    _change(
        package / "step.py",
        "    weight: float | None = None\n",
        '    weight: float | None = None\n    note: str = ""\n',
    )
    for table, entry in _DEPRECATED.items():
        lines = (package / "deprecated.py").read_text().splitlines()
        (line,) = (line for line in lines if line.startswith(f"{table}: Final"))
        _change(package / "deprecated.py", line, line.replace("MappingProxyType({", "MappingProxyType({" + entry))
    _change(package / "__init__.py", '"GeneratedSample", "MetricPoint", "RunState"', '"GeneratedSample", "RunState"')
    _change(package / "__init__.py", '    "MetricPoint",\n', "", last=True)
    if version >= "1.3":
        _change(lifecycle, "on_stop_requested(reason: str, requested_by: str, ", "on_stop_requested(reason: str, ")
    return folder


def _change(path: Path, old: str, new: str, *, last: bool = False) -> None:
    """Replace a piece of a file. What is not there any more would leave a contract that is no later version."""
    text = path.read_text()
    if old not in text:
        pytest.fail(f"{path.name} has no {old!r} any more; these tests make later contracts by changing it")
    place = text.rindex(old) if last else text.index(old)
    path.write_text(text[:place] + new + text[place + len(old) :])


def pip_install(target: Path, *sources: Path) -> None:
    """Build wheels and install them into a folder, without a network."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    command += ["--no-deps", "--no-build-isolation", "--no-compile", "--target", str(target)]
    done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the plugins installed."""
    site = tmp_path_factory.mktemp("plugins")
    # Copies: pip may build inside a source folder.
    copies = shutil.copytree(HERE / "plugins", tmp_path_factory.mktemp("sources") / "plugins")
    pip_install(site, *sorted(file.parent for file in copies.glob("*/pyproject.toml")))
    return site


@pytest.fixture(scope="session")
def contracts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By version, the folder that a contract is installed in."""
    sites: dict[str, Path] = {}
    for version in ("1.0.0", "1.1.0", "1.3.0"):
        sites[version] = tmp_path_factory.mktemp(f"contract-{version}")
        pip_install(sites[version], make_contract(tmp_path_factory.mktemp("hookspecs") / version, version))
    return sites


@attrs.frozen(kw_only=True)
class Place:
    """An environment with one version of the contract, and a folder to run jobs in."""

    folder: Path
    path: str

    def hostcore(self, *arguments: str) -> Said:
        """Run a command in a process of its own."""
        environment = {name: value for name, value in os.environ.items() if name != "HOSTCORE_RUNS_DIR"}
        done = subprocess.run(
            [sys.executable, "-P", "-m", "hostcore", *arguments],
            cwd=self.folder,
            env={**environment, "PYTHONPATH": self.path, "WITNESS": str(self.folder), "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return Said(code=done.returncode, out=done.stdout, err=done.stderr)

    def job(self, **keys: Any) -> str:
        """Write a job, and return its file."""
        job = {
            "trainer_api_version": "v1",
            "run_id": "r",
            "device": "cpu",
            "seed": 3,
            "max_steps": 8,
            "metric_every": 1,
        }
        (self.folder / "job.json").write_text(json.dumps({**job, **keys}))
        return "job.json"

    def witness(self, name: str) -> Any:
        """What a plugin has written down."""
        return json.loads((self.folder / name).read_text())

    def events(self, *names: str) -> list[dict[str, Any]]:
        """The run's events of some names."""
        lines = (self.folder / "runs/r/logs/events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] in names]


@pytest.fixture
def on(contracts: dict[str, Path], plugins: Path, tmp_path: Path) -> Any:
    """``on("1.1.0")``: a place where that contract is installed, with the plugins."""

    def place(version: str, *more: Path) -> Place:
        folder = tmp_path / f"on-{version}"
        folder.mkdir(exist_ok=True)
        sites = [contracts[version], plugins, *more]
        return Place(
            folder=folder, path=os.pathsep.join([*map(str, sites), *filter(None, [os.environ.get("PYTHONPATH")])])
        )

    return place
