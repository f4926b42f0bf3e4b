"""Runs whose workers have environments of their own."""

import json
import platform
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from command_line import COMMAND, Said
from package_index import Index

from hostcore.supervisor.environment import OWN
from hostcore_builtin_plugins.extras import install_command

#: What wheels are there for.
HERE = f"sys_platform == '{sys.platform}' and platform_machine == '{platform.machine()}'"
BOTH = {"environment": {"requirements": ["of-its-own"]}, "trainer": "of-its-own", "run_id": "own"}


@pytest.fixture
def published(workplace: Any) -> Any:
    """An index with the trainer ``of-its-own``, which is installed nowhere."""
    workplace.index.publish("of-its-own", trainer="of-its-own", requires=["hostcore-hookspecs>=1,<2"])
    return workplace


@pytest.fixture(scope="module")
def first(make_workplace: Callable[[Path], Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Said]:
    """A workplace whose run ``own`` has ended. Since then, its index has a version 2.0, which adds 100 at each step."""
    place = make_workplace(tmp_path_factory.mktemp("begun"))
    place.index.publish("of-its-own", trainer="of-its-own", requires=["hostcore-hookspecs>=1,<2"])
    done = place.hostcore("run", place.job(**BOTH, checkpoint_base_uri=str(place.path / "mirror")))
    assert done.code == 0, done.err
    assert sum_of(place, "own") == 4.0
    place.index.publish("of-its-own", version="2.0", trainer="of-its-own", step=100)
    return place, done


@pytest.fixture
def begun(first: tuple[Any, Said]) -> Any:
    return first[0]


def sum_of(place: Any, run_id: str) -> float:
    return float(place.document(run_id, "result.json")["metrics"]["sum"])


def lock_of(place: Any, run_id: str) -> Path:
    return Path(place.run_directory(run_id) / "config" / "pylock.toml")


def test_the_worker_runs_in_the_environment(first: tuple[Any, Said]) -> None:
    place, done = first
    python = Path(place.output("own").splitlines()[0])
    assert python.is_relative_to(place.environment["HOSTCORE_ENVIRONMENTS_DIR"])
    assert "environment: Installed" in done.err
    record = place.document("own", "config/run.json")
    (trainer,) = (one for one in record["plugins"] if one["kind"] == "trainer")
    assert (trainer["distribution"], trainer["version"]) == ("of-its-own", "1.0")
    assert trainer["sha256"]
    names = {one["name"] for one in tomllib.loads(lock_of(place, "own").read_text())["packages"]}
    assert {"of-its-own", "torch", "pyarrow"} <= names
    assert not [name for name in names if name.startswith("hostcore")]


def test_environments_are_listed_and_removed(published: Any) -> None:
    checked = published.hostcore("validate", published.job(**BOTH))
    assert checked.code == 0, checked.err
    (one,) = published.hostcore("environments", "list", "--json").json["environments"]
    assert one["made_for"] == ["of-its-own"]
    assert "the 10 last used are kept, and at most 50 GB" in published.hostcore("environments", "list").err
    removed = published.hostcore("environments", "remove", "--all")
    assert removed.out == f"removed {one['key']}\n"
    assert published.hostcore("environments", "list", "--json").json["environments"] == []


@pytest.mark.parametrize("where", ["here", "on another machine"])
def test_a_run_that_goes_on_installs_what_it_began_with(begun: Any, where: str) -> None:
    """Here from its directory, on another machine from its mirror; in either case where nothing is installed."""
    before, lock = begun.document("own", "result.json"), lock_of(begun, "own").read_bytes()
    more = before["step"] + 2
    elsewhere = {"HOSTCORE_ENVIRONMENTS_DIR": str(begun.path / f"environments {where}")}
    if where == "here":
        done = begun.hostcore("resume", "own", "--set", f"max_steps={more}", **elsewhere)
    else:
        begun.run_directory("own").rename(begun.path / "on the machine that is gone")
        done = begun.hostcore("run", "job.json", "--set", f"max_steps={more}", **elsewhere)
        assert "is fetched from" in done.err
    assert done.code == 0, done.err
    assert sum_of(begun, "own") == more
    assert begun.document("own", "result.json")["attempt"] == before["attempt"] + 1
    assert lock_of(begun, "own").read_bytes() == lock


def test_a_new_run_takes_the_versions_and_the_environment_of_the_last_for_a_while(begun: Any) -> None:
    for run_id, reuse, total in (("again", "", 4.0), ("anew", "0", 400.0)):
        job = begun.job("again.json", **{**BOTH, "run_id": run_id})
        done = begun.hostcore("run", job, HOSTCORE_ENVIRONMENTS_REUSE_SECONDS=reuse)
        assert done.code == 0, done.err
        assert ("as they were resolved" in done.err) == ("building" not in done.err) == (run_id == "again")
        assert sum_of(begun, run_id) == total


def test_a_job_may_name_an_index_which_is_asked_first(begun: Any) -> None:
    more = Index(begun.path / "more")
    more.path.mkdir()
    more.publish("of-its-own", trainer="of-its-own", step=10)
    environment = {"requirements": ["of-its-own"], "indexes": [more.path.as_uri()]}
    done = begun.hostcore("run", begun.job("more.json", **{**BOTH, "environment": environment, "run_id": "more"}))
    assert done.code == 0, done.err
    assert sum_of(begun, "more") == 40.0


def test_a_lock_is_installed_as_it_is(begun: Any) -> None:
    (begun.path / "pylock.toml").write_text(lock_of(begun, "own").read_text())
    locked = {**BOTH, "environment": {"lock": "pylock.toml"}, "run_id": "locked"}
    done = begun.hostcore("run", begun.job("locked.json", **locked))
    assert done.code == 0, done.err
    assert sum_of(begun, "locked") == 4.0


def test_the_environment_belongs_to_the_job(begun: Any) -> None:
    begun.index.publish("another", trainer="another")
    other = {**BOTH, "environment": {"requirements": ["of-its-own", "another"]}, "max_steps": 8}
    done = begun.hostcore("run", begun.job("other.json", **other), "--json")
    assert done.code == 2
    assert "environment" in done.json["errors"][0]["message"]


STARTS = """
import os, sys
with open(os.environ["STARTS"], "a") as file:
    print(sys.executable, *sys.orig_argv[1:], file=file)
"""


def test_no_worker_of_another_python_is_given_the_run(begun: Any) -> None:
    (begun.path / "site").mkdir()
    (begun.path / "site" / "sitecustomize.py").write_text(STARTS)
    starts = begun.path / "starts"
    seen = {"PYTHONPATH": str(begun.path / "site"), "STARTS": str(starts)}
    assert begun.hostcore("run", begun.job("seen.json", **{**BOTH, "run_id": "seen"}), **seen).code == 0
    assert begun.hostcore("resume", "seen", "--set", "max_steps=6", **seen).code == 0
    # One that was started before the job was known has no contract among its arguments, and was ended without one.
    workers = [line for line in starts.read_text().splitlines() if "-m hostcore.worker" in line and "contract" in line]
    assert len(workers) == 2
    environments = begun.environment["HOSTCORE_ENVIRONMENTS_DIR"]
    assert all(line.startswith(environments) for line in workers)


FOLDER_PROJECT = """
[project]
name = "in-a-folder"
version = "1.0"

[project.entry-points."hostcore.trainers"]
in-a-folder = "in_a_folder:Trainer"

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
"""


def test_a_folder_is_installed_as_it_is_now_also_from_a_lock(workplace: Any) -> None:
    project = workplace.path / "mine"
    project.mkdir()
    (project / "pyproject.toml").write_text(FOLDER_PROJECT)
    by_name, locked = {"requirements": ["./mine"]}, {"lock": "pylock.toml"}
    for run_id, step, environment in (("first", 1, by_name), ("second", 10, by_name), ("third", 100, locked)):
        (project / "in_a_folder.py").write_text(workplace.index.source(step))
        if environment is locked:
            lock = lock_of(workplace, "first").read_text()
            (workplace.path / "pylock.toml").write_text(lock.replace(str(project), "./mine"))
        own = {"trainer": "in-a-folder", "environment": environment, "run_id": run_id}
        done = workplace.hostcore("run", workplace.job(**own))
        assert done.code == 0, done.err
        assert sum_of(workplace, run_id) == 4.0 * step


def test_the_lock_of_a_uv_project_is_installed_as_it_is(workplace: Any) -> None:
    workplace.index.publish("of-its-own", trainer="of-its-own")
    needed = [one for own in OWN for one in requires(own) or [] if "extra ==" not in one and "hostcore" not in one]
    project = {
        "name": '"project"',
        "version": '"1.0"',
        "requires-python": f'"=={sys.version_info.major}.{sys.version_info.minor}.*"',
        "dependencies": json.dumps(["of-its-own", *needed]),
    }
    lines = ["[project]", *(f"{key} = {value}" for key, value in project.items())]
    folder = workplace.path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("\n".join(lines) + f'\n[tool.uv]\nenvironments = ["{HERE}"]\n')
    lock = [sys.executable, "-m", "uv", "--quiet", "lock", "--project", str(folder)]
    subprocess.run(lock, env=workplace.environment, check=True)
    workplace.index.publish("of-its-own", version="2.0", trainer="of-its-own", step=100)
    done = workplace.hostcore("run", workplace.job(**{**BOTH, "environment": {"lock": "project/uv.lock"}}))
    assert done.code == 0, done.err
    assert workplace.document("own", "result.json")["metrics"]["sum"] == 4.0
    resolved = tomllib.loads((workplace.run_directory("own") / "config" / "pylock.toml").read_text())
    names = {one["name"] for one in resolved["packages"]}
    assert {"of-its-own", "torch"} <= names
    assert "project" not in names


def test_a_lock_without_what_hostcore_needs_is_one_error(published: Any) -> None:
    (published.path / "pylock.toml").write_text('lock-version = "1.0"\ncreated-by = "tests"\npackages = []\n')
    done = published.hostcore("validate", published.job(**{**BOTH, "environment": {"lock": "pylock.toml"}}), "--json")
    assert done.code == 2
    (error,) = done.json["errors"]
    assert (error["code"], error["pointer"]) == ("environment.failed", "/environment/lock")
    assert "it lacks annotated-types>=" in error["message"]
    assert "torch>=" in error["message"]
    assert "hostcore among its dependencies" in error["hint"]
    assert str(published.environment["HOSTCORE_ENVIRONMENTS_DIR"]) in error["hint"]


LOCK = 'lock-version = "1.0"\ncreated-by = "tests"\n'
WHEEL_FOR_WINDOWS = """
[[packages]]
name = "mine"
version = "1.0"
wheels = [{url = "http://127.0.0.1:9/mine-1.0-cp311-cp311-win_amd64.whl", hashes = {sha256 = "00"}}]
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LOCK + WHEEL_FOR_WINDOWS.replace("00", "0" * 64), "doesn't have a source distribution or wheel for the"),
        (LOCK + "environments = [\"sys_platform == 'win32'\"]\npackages = []", "target environment is not supported"),
        (LOCK + 'requires-python = ">=3.99"\npackages = []', ">=3.99"),
        ("no lock [", "Not a valid `pylock.toml` file"),
        (LOCK + 'packages = ["x"]', 'invalid type: string "x"'),
        (LOCK + "packages = 3", "invalid type: integer `3`"),
        (LOCK + '[[packages]]\ndirectory = {path = "x"}', "missing field `name`"),
    ],
    ids=["wheels", "environments", "python", "syntax", "package", "packages", "name"],
)
def test_a_lock_for_another_machine_or_none_is_one_error(workplace: Any, text: str, message: str) -> None:
    (workplace.path / "pylock.toml").write_text(text)
    job = workplace.job(**{**BOTH, "environment": {"lock": "pylock.toml"}})
    done = workplace.hostcore("validate", job, "--json")
    assert done.code == 2
    (error,) = done.json["errors"]
    assert (error["code"], error["pointer"]) == ("environment.failed", "/environment/lock")
    assert message in error["message"]
    assert "everything that uv said is in" in error["hint"]


def test_an_index_that_cannot_be_reached_is_one_error(workplace: Any) -> None:
    unreachable = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0"}
    done = workplace.hostcore("validate", workplace.job(**BOTH), "--json", **unreachable)
    assert done.code == 2
    (error,) = done.json["errors"]
    assert error["pointer"] == "/environment/requirements"
    assert "Failed to fetch" in error["message"]
    assert "http://127.0.0.1:9/simple" in error["message"]


#: On a small disk, in a mount namespace of its own; then on a larger one.
SMALL_DISK = """
mount -t tmpfs -o size=3M tmpfs "$1"
shift
"$@"; echo "exit code $?"
ls -d "$HOSTCORE_ENVIRONMENTS_DIR"/*.building "$HOSTCORE_ENVIRONMENTS_DIR"/*/environment.json
mount -o remount,size=64M "$HOSTCORE_ENVIRONMENTS_DIR"
"$@" >&2; echo "exit code $?"
"""
OWN_MOUNTS = ["unshare", "--user", "--map-root-user", "--mount"]


def test_a_disk_that_is_full_in_the_middle_is_one_error_and_nothing_stays(published: Any) -> None:
    mounted = subprocess.run([*OWN_MOUNTS, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting in a namespace is not allowed here")
    disk = Path(published.environment["HOSTCORE_ENVIRONMENTS_DIR"])
    disk.mkdir()
    job = published.job(**BOTH)
    done = subprocess.run(
        [*OWN_MOUNTS, "bash", "-c", SMALL_DISK, "bash", disk, COMMAND, "validate", job, "--json"],
        cwd=published.path,
        env=published.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    said, _, after = done.stdout.partition("exit code 2\n")
    (error,) = json.loads(said)["errors"]
    assert (error["code"], error["pointer"]) == ("environment.failed", "/environment")
    assert "No space left on device" in error["message"]
    assert "HOSTCORE_ENVIRONMENTS_DIR" in error["hint"]
    assert after == "exit code 0\n", done.stderr


@pytest.mark.parametrize(
    ("environment", "pointer", "message"),
    [
        ({}, "/environment", "has neither requirements, lock nor interpreter"),
        ({"requirements": ["a"], "lock": "pylock.toml"}, "/environment", "has requirements and lock"),
        ({"interpreter": sys.executable, "python": "3.12"}, "/environment/python", "has its own version"),
        ({"interpreter": "/nowhere/python"}, "/environment/interpreter", "cannot be started: No such file"),
        ({"interpreter": "/bin/true"}, "/environment/interpreter", "is no Python 3: it exited with 0"),
        ({"lock": "nowhere.toml"}, "/environment/lock", "there is no lock"),
        ({"requirements": ["of-its-own==1.0", "of-its-own==2.0"]}, "/environment/requirements", "unsatisfiable"),
        ({"requirements": ["a"], "python": "3.99"}, "/environment/python", "No interpreter found for Python 3.99"),
        ({"requirements": ["-r other.txt"]}, "/environment/requirements/0", "is an option"),
    ],
)
def test_an_environment_that_cannot_be(
    published: Any, environment: dict[str, object], pointer: str, message: str
) -> None:
    done = published.hostcore("validate", published.job(**{**BOTH, "environment": environment}), "--json")
    assert done.code == 2
    (error,) = done.json["errors"]
    assert error["pointer"] == pointer
    assert message in error["message"]
    assert error["hint"]


def test_a_place_for_environments_that_cannot_be_is_one_error(published: Any) -> None:
    (published.path / "file").touch()
    done = published.hostcore(
        "validate", published.job(**BOTH), "--json", HOSTCORE_ENVIRONMENTS_DIR=str(published.path / "file" / "below")
    )
    assert done.code == 2
    (error,) = done.json["errors"]
    assert (error["code"], error["pointer"]) == ("environment.failed", "/environment")
    assert "HOSTCORE_ENVIRONMENTS_DIR" in error["hint"]


def test_another_hostcore_is_refused(published: Any, tmp_path: Path) -> None:
    """An environment whose hostcore is of another version, which nothing there can import."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "other"], check=True)
    (packages,) = (tmp_path / "other" / "lib").glob("python*/site-packages")
    (packages / "hostcore-0.0.9.dist-info").mkdir()
    (packages / "hostcore-0.0.9.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: hostcore\nVersion: 0.0.9\n"
    )
    own = {**BOTH, "environment": {"interpreter": str(tmp_path / "other" / "bin" / "python")}}
    (error,) = published.hostcore("run", published.job(**own), "--json").json["errors"]
    assert error["code"] == "environment.unusable"
    assert "hostcore 0.0.9, hostcore-hookspecs is missing" in error["message"]
    assert install_command(python=own["environment"]["interpreter"]) in error["hint"]


def test_a_run_in_this_process_has_no_environment(published: Any) -> None:
    done = published.hostcore("run", "--in-process", published.job(**BOTH), "--json")
    assert done.code == 2
    assert done.json["errors"][0]["pointer"] == "/environment"
