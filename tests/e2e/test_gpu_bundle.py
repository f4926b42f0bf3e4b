"""hostcore on a machine without a network: `benchmarks/gpu_bundle.py`, beside a torch that is there already.

The machine is an environment with torch, numpy, pyarrow and matplotlib; the wheels of all other libraries link to what
is installed here (``linked_wheels``), in place of those that ``collect`` downloads.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import linked_wheels
import pytest
from checkout import ROOT

SCRIPT = ROOT / "benchmarks/gpu_bundle.py"
OWN = (
    *("hookspecs", "toolkit", "builtin_plugins", ".", "example_trainers/char_lm"),
    *("extensions/chaos", "extensions/conformance", "extensions/inspect"),
)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Variables for a pip that finds what is installed here."""
    return linked_wheels.make(tmp_path_factory.mktemp("published"))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, published: Mapping[str, str]) -> Path:
    """The Python of a machine that has torch and what usually lies beside it."""
    place = tmp_path_factory.mktemp("machine")
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    pip = [place / "bin/python", "-m", "pip", "install", "-q", "torch", "numpy", "pyarrow", "matplotlib"]
    subprocess.run(pip, env=os.environ | published, check=True)
    return place / "bin/python"


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory, published: Mapping[str, str]) -> Path:
    """The folder of wheels, without those of the adapters."""
    folder = tmp_path_factory.mktemp("carried")
    index = Path(published["PIP_INDEX_URL"].removeprefix("file://"))
    for wheel in index.glob("*/*.whl"):
        shutil.copy(wheel, folder)
    projects = [ROOT / name for name in OWN]
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, *projects]
    subprocess.run(pip, check=True)
    return folder


def installed(python: Path | str, place: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Return the output of ``install``, where no index can be reached."""
    command = [python, SCRIPT, "--dir", folder, "install", place]
    environment = os.environ | {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def environment(machine: Path, carried: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment that ``install`` makes."""
    place = tmp_path_factory.mktemp("installed") / "gpu"
    done = installed(machine, place, carried)
    assert done.returncode == 0, done.stderr
    for name in ("hostcore-lightning", "hostcore-transformers"):  # which are not in this folder
        assert f"left out: {name}: ERROR: No matching distribution found for {name}" in done.stdout
    return place


def test_the_environment_has_hostcore_its_plugins_and_the_machines_torch(environment: Path, tmp_path: Path) -> None:
    command = [environment / "bin/hostcore", "plugins", "--json"]
    listed = json.loads(subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout)
    assert "char_lm" in json.dumps(listed)
    code = "import torch, pytest, hostcore; print(torch.__file__, hostcore.__file__)"
    command = [environment / "bin/python", "-c", code]
    seen = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()
    assert seen[1].startswith(str(environment))


def test_a_copy_of_the_tree_without_git_measures_every_row_on_the_cpu(environment: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "benchmarks", tmp_path / "tree/benchmarks")
    options = ["--device", "cpu", "--quick", "--minutes", "120", "--json", tmp_path / "gpu.json"]
    command = [environment / "bin/python", "benchmarks/gpu.py", *options]
    done = subprocess.run(command, cwd=tmp_path / "tree", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "gpu.json").read_text())["rows"]
    missing = {name: row["note"] for name, row in rows.items() if row["values"] is None}
    assert set(missing.values()) == {"only a GPU can show it"}
    assert {name.partition(": ")[2] for name in missing} == {
        *("waits", "warned", "pageable", "overlap"),
        *("hostcore_memory", "torch_save_memory", "dcp_memory"),
    }
    subjects = {name.partition(":")[0] for name in rows}
    assert subjects == {name.partition(":")[0] for name in rows.keys() - missing.keys()}
    assert len(subjects) == 10
    assert [row["values"] for name, row in rows.items() if name.endswith(": reads")] == [[0.0]] * 8
    compared = [sys.executable, ROOT / "benchmarks/compare.py", tmp_path / "gpu.json", tmp_path / "gpu.json"]
    assert "gpu: device cpu, " in subprocess.run(compared, capture_output=True, text=True, check=True).stdout


def test_a_folder_without_wheels_is_one_error(tmp_path: Path) -> None:
    done = installed(sys.executable, tmp_path / "gpu", tmp_path)
    assert done.returncode == 1
    assert done.stderr == f"{tmp_path} holds no wheels of hostcore: make gpu-bundle, and carry it along\n"
    assert not (tmp_path / "gpu").exists()


def test_a_folder_that_is_no_environment_is_not_replaced(carried: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    done = installed(sys.executable, tmp_path, carried)
    assert done.returncode == 1
    assert done.stderr == f"{tmp_path} is there, and no virtual environment: name another folder\n"
    assert (tmp_path / "mine").exists()


def test_a_machine_without_torch_is_one_error(carried: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    done = installed(tmp_path / "bare/bin/python", tmp_path / "gpu", carried)
    assert done.returncode == 1
    assert done.stderr == f"{tmp_path}/bare/bin/python has no torch: run this with the Python that has it\n"
