"""Runs of the trainer ``process`` whose program has an environment of its own, without hostcore."""

import os
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest

#: Adds ``step`` at each step; it says where it runs, and which Python that is.
PROGRAM = """
    import json, os, sys
    STEP, total = {step}, 0.0
    print("program", sys.prefix, "%d.%d" % sys.version_info[:2], os.environ["VIRTUAL_ENV"], file=sys.stderr, flush=True)
    try:
        import hostcore
        print("has hostcore", file=sys.stderr, flush=True)
    except ImportError:
        pass
    for line in sys.stdin:
        asked = json.loads(line)
        method, params, result = asked["method"], asked["params"], None
        if method == "initialize":
            result = {{"protocol": "hostcore.trainer/1", "methods": []}}
        elif method == "train_step":
            total += STEP
            result = {{"metrics": {{"sum": total}}}}
        elif method == "save_checkpoint":
            with open(params["output_dir"] + "/total", "w") as file:
                file.write(repr(total))
        elif method == "load_checkpoint":
            with open(params["checkpoint_dir"] + "/total") as file:
                total = float(file.read())
        print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "result": result}}), flush=True)
"""


def job(**environment: Any) -> dict[str, Any]:
    return {
        "run_id": "own",
        "trainer": "process",
        "hyperparams": {"command": ["python", "-m", "adding"]},
        "environment": {"used_by": "programs", **environment},
    }


def publish(workplace: Any, version: str, *, step: int) -> Path:
    wheel: Path = workplace.index.publish("adding", version=version, source=textwrap.dedent(PROGRAM).format(step=step))
    return wheel


@pytest.fixture
def published(workplace: Any) -> Any:
    """An index with the program ``adding``, which is installed nowhere."""
    publish(workplace, "1.0", step=1)
    return workplace


def said(workplace: Any, attempt: int = 1) -> list[str]:
    """What the program has said of itself: its environment, its version of Python, ``VIRTUAL_ENV``."""
    output = workplace.output("own", attempt)
    assert "has hostcore" not in output
    (line,) = (line for line in output.splitlines() if line.startswith("program "))
    return line.split()[1:]


def another_python() -> str:
    """A Python of this machine, of another version if it has one."""
    minors = [minor for minor in range(8, 20) if minor != sys.version_info.minor]
    places = [*map(str, Path.home().glob(".pyenv/versions/*/bin")), *os.environ["PATH"].split(":")]
    for minor in minors:
        for place in places:
            found = shutil.which(f"python3.{minor}", path=place)
            if found and not subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode:
                return found
    return sys.executable


def test_the_program_runs_there_and_the_worker_here(published: Any) -> None:
    python = another_python()
    asked = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    done = published.hostcore("run", published.job(**job(requirements=["adding"], python=python)))
    assert done.code == 0, done.err
    assert "environment: building it" in done.err
    assert published.document("own", "result.json")["metrics"]["sum"] == 4.0
    prefix, ran, activated = said(published)
    assert Path(prefix).is_relative_to(published.environment["HOSTCORE_ENVIRONMENTS_DIR"])
    assert (ran, activated) == (version, prefix)
    contract = published.document("own", "config/contract.attempt-1.rank-0.json")
    assert (contract["python"], contract["programs_python"]) == ("", f"{prefix}/bin/python")
    lock = tomllib.loads((published.run_directory("own") / "config" / "pylock.toml").read_text())
    assert [one["name"] for one in lock["packages"]] == ["adding"]


def test_an_environment_that_exists_needs_no_hostcore(published: Any) -> None:
    place = published.path / "venv"
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "venv", "--no-project", "--python", another_python(), str(place)], check=True)
    install = [*uv, "pip", "install", "--python", str(place / "bin" / "python"), "adding"]
    subprocess.run(install, check=True, env={**published.environment, "NO_COLOR": "1"})
    file = published.job(**job(interpreter="venv/bin/python"))
    checked = published.hostcore("validate", file)
    assert checked.code == 0, checked.err
    done = published.hostcore("run", file)
    assert done.code == 0, done.err
    assert Path(said(published)[0]) == place
    assert not (published.run_directory("own") / "config" / "pylock.toml").exists()


def test_an_interpreter_that_is_not_python_in_its_folder_is_one_error(published: Any) -> None:
    """Its folder comes first on the PATH: the program would run in another one."""
    own = published.path / "python3.older"
    own.symlink_to(another_python())
    done = published.hostcore("run", published.job(**job(interpreter="./python3.older")))
    assert (done.code, done.err.count("error: ")) == (2, 1), done.err
    assert f"{own.with_name('python')} is not {own}" in done.err
    assert "at: /environment/interpreter" in done.err


def test_a_program_that_the_packages_have_not_is_one_error(published: Any) -> None:
    wrong = {**job(requirements=["adding"]), "hyperparams": {"command": ["not-of-adding"]}}
    done = published.hostcore("run", published.job(**wrong))
    assert (done.code, done.err.count("error: ")) == (2, 1), done.err
    assert "not-of-adding cannot be started: No such file" in done.err
