"""The Dockerfile's own steps, made without docker in a folder in place of the image's file system.

What others have published is not installed again: pip gets wheels that link to what is installed here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import linked_wheels
import pytest
from checkout import ROOT

#: Folders of the image; a path in one of them is made one of the folder that stands for it.
_INSIDE = re.compile(r"(?<![\w./])/(?=(src|wheels|app|opt/hostcore|etc/profile\.d)\b)")
#: The user is made by a program that changes the machine's own users.
_MACHINES_OWN = "groupadd"

TRAINER = """
from hostcore_hookspecs import StepResult

class Trainer:
    def setup(self, ctx): pass
    def configure(self, ctx): return {}
    def prepare_batch(self, raw_batch, state, ctx): return raw_batch
    def train_step(self, prepared_batch, state, ctx): return StepResult(metrics={"loss": 1.0})
    def state_dict(self, state): return {}
    def load_state_dict(self, state, payload): pass
"""


@attrs.frozen
class Instruction:
    """A line of the Dockerfile, its continuations joined."""

    name: str
    argument: str


def instructions() -> list[Instruction]:
    lines = (line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#"))
    joined = "\n".join(lines).replace("\\\n", " ")
    return [Instruction(*line.split(maxsplit=1)) for line in joined.splitlines() if line]


def stages() -> list[list[Instruction]]:
    """What is before the first FROM, and each stage from its FROM on."""
    found: list[list[Instruction]] = [[]]
    for one in instructions():
        if one.name == "FROM":
            found.append([])
        found[-1].append(one)
    return found


@attrs.frozen
class Image:
    """A folder with what the image would have."""

    root: Path

    def inside(self, text: str) -> str:
        return _INSIDE.sub(f"{self.root}/", text)

    @property
    def environment(self) -> dict[str, str]:
        clean = ("HOSTCORE_", "PYTHON", "TRAINER", "WORKER_", "VIRTUAL_ENV")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(clean)}
        path = f"{self.root}/opt/hostcore/bin{os.pathsep}{os.environ['PATH']}"
        return {**inherited, "PATH": path, "HOSTCORE_RUNS_DIR": str(self.root / "runs")}

    def run(self, *command: str, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=cwd or self.root / "app",
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


def _context() -> Iterator[Path]:
    """The files that docker is sent: the last pattern that matches one, or a folder of it, decides."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]

    def is_sent(path: Path) -> bool:
        places = [*path.parents[:-1], path]
        sent = True
        for pattern in patterns:
            if any(_matches(one, pattern.lstrip("!")) for one in places):
                sent = pattern.startswith("!")
        return sent

    for top in ROOT.iterdir():
        if is_sent(top.relative_to(ROOT)):
            for path in [top] if top.is_file() else top.rglob("*"):
                if path.is_file() and is_sent(path.relative_to(ROOT)):
                    yield path.relative_to(ROOT)


def _matches(path: Path, pattern: str) -> bool:
    """As docker does it: a star stays within a part of a path, and two stand for any folders before it."""
    if pattern.startswith("**/"):
        return path.match(pattern.removeprefix("**/"))
    return path.match(pattern) and len(path.parts) == len(Path(pattern).parts)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    made = Image(tmp_path_factory.mktemp("image"))
    (made.root / "etc/profile.d").mkdir(parents=True)
    context = tmp_path_factory.mktemp("context")
    for path in _context():
        (context / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, context / path)
    pip = linked_wheels.make(tmp_path_factory.mktemp("published"))
    for stage in stages()[1:]:
        _make(stage, made, context, pip)
    return made


def _make(stage: list[Instruction], image: Image, context: Path, pip: Mapping[str, str]) -> None:
    """Make a stage of the Dockerfile.

    :param pip: Where pip finds what others have published.
    """
    folder, variables = image.root, dict(pip)
    for one in stage:
        argument = image.inside(one.argument)
        if one.name == "WORKDIR":
            folder = Path(argument)
            folder.mkdir(parents=True, exist_ok=True)
        elif one.name == "ENV" and "PIP_" in argument:
            variables |= dict(pair.split("=", 1) for pair in argument.split())
        elif one.name == "ARG":
            name, _, default = argument.partition("=")
            variables[name] = default
        elif one.name == "COPY":
            *sources, target = argument.split()
            for source in sources:
                _copy(context / source, folder / target, into=len(sources) > 1)
        elif one.name == "RUN" and _MACHINES_OWN not in argument:
            command = re.sub(r"^(--mount=\S+\s+)+", "", argument)
            environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
            environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=folder,
                env={**environment, **variables},
                check=False,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])


def _copy(source: Path, target: Path, *, into: bool) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        target = target / source.name if into else target
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def test_it_runs_as_a_numbered_user_from_a_named_version() -> None:
    before, *made = stages()
    [default] = [one.argument.partition("=")[2] for one in before if one.argument.startswith("PYTHON=")]
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", default)
    assert all(stage[0].argument.split()[0] == "${PYTHON}" for stage in made)
    *_, user = [one.argument for one in made[-1] if one.name == "USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert "latest" not in (ROOT / "Dockerfile").read_text()


def test_it_has_what_the_service_needs_and_nothing_to_build_with(image: Image) -> None:
    listed = image.run("python", "-m", "pip", "list", "--format=json").stdout
    names = {one["name"].lower() for one in json.loads(listed)}
    assert {"hostcore", "hostcore-hookspecs", "hostcore-builtin-plugins", "fastapi", "psycopg", "kubernetes"} <= names
    assert not {"hatchling", "build", "pytest", "mypy", "ruff"} & names
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    loose = (
        names
        - {name.lower() for name in pinned}
        - {"pip", "hostcore", "hostcore-hookspecs", "hostcore-toolkit", "hostcore-builtin-plugins"}
        - {"hostcore-engines", "hostcore-inspect", "hostcore-service"}
    )
    assert not {name for name in loose if not name.startswith(("nvidia-", "cuda-", "triton"))}


def test_its_entry_point_is_the_command_and_train_py_is_the_entry_point(image: Image) -> None:
    [command] = [json.loads(one.argument) for one in instructions() if one.name == "ENTRYPOINT"]
    assert image.run(*command, "--version").stdout.startswith("hostcore")
    assert "TRAINER_API_TOKEN is not set" in image.run(*command, "serve").stderr
    for start in (command, ["python", "train.py"]):
        done = image.run(*start)
        assert (done.returncode, "no job is described" in done.stderr) == (2, True), done.stderr


def test_a_login_shell_finds_its_programs(image: Image) -> None:
    profile = image.root / "etc/profile.d/hostcore.sh"
    found = image.run("bash", "-c", f"PATH=/usr/bin:/bin; . {profile}; command -v torchrun", cwd=image.root)
    assert found.stdout.strip() == str(image.root / "opt/hostcore/bin/torchrun")


def test_it_trains(image: Image, tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text(TRAINER)
    job = {"trainer": "trainer:Trainer", "run_id": "a", "mock_batches": [1, 2], "device": "cpu"}
    (tmp_path / "job.json").write_text(json.dumps(job))
    done = image.run("python", "-P", "-m", "hostcore_service.container", "run", "job.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((image.root / "runs/a/result.json").read_text())["step"] == 2
