"""A project whose plugins let out twenty secrets, and a search for them in everything that a run leaves."""

import base64
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs
import pytest
from command_line import Said, said_by
from fork_server import hostcore

HERE = Path(__file__).parent

#: Twenty values, no two alike, some awkward.
PLANTED = [
    "plain-Token-3141592653",
    'double"quotes"Of-27182818',
    "single'quotes'Of-14142135",
    "both\"and'quotes-17320508",
    "back\\slashed\\22360679",
    "tab\tin-the-middle-26457513",
    "ümläuted-ñ-密码-33166247",
    "per%25cent%zz-36055512",
    "sp aced out & + <angle>-41231056",
    "slash/ed?query=1#43588989",
    "contained-47958315",
    "this-one-has-contained-47958315-in-it",
    "-----BEGIN KEY-----\nMIIEvQIBADANBgkq47958\nhkiG9w0BAQEFAASC53851\n-----END KEY-----",
    "two lines-55677643\nsecond line-60827625",
    "k" * 30 + "-64031242",
    "z" * 300 + "-65574385",
    "dollar$HOME`id`-68556546",
    "comma,semi;colon:-70710678",
    "{brace}[bracket]-72801098",
    "\\u0041\\n-escaped-73484692",
]

PLUGINS = ("trainer", "data", "callback", "reporter", "uploader", "resolver")


def shown_in(text: bytes) -> list[str]:
    """The planted values that a text shows, in any notation that is hidden."""
    return [value for value in PLANTED if any(form.encode() in text for form in notations(value))]


def notations(value: str) -> list[str]:
    in_basic = [base64.b64encode(f"{user}{value}".encode()).decode()[:-4] for user in ("", "me:", "you:", "user:")]
    return [
        value,
        *in_basic,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        quote(value, safe=""),
    ]


@attrs.frozen
class Leaks:
    """A folder with a job, its secrets outside of it, and the plugins installed."""

    path: Path
    environment: Mapping[str, str]
    references: list[dict[str, str]]
    started: list["subprocess.Popen[str]"] = attrs.field(factory=list)

    def settings(self, plugin: str) -> dict[str, Any]:
        """Three or more of the references, each given to one plugin alone."""
        first = 3 * PLUGINS.index(plugin)
        token, text, more = self.references[first : first + 3]
        left = {"last": self.references[18], "very_last": self.references[19]} if plugin == "trainer" else {}
        return {"token": token, "text": text, "more": [more], "options": left}

    def job(self, run_id: str, **keys: Any) -> Path:
        """A job that uses all kinds of plugins."""
        job = {
            "run_id": run_id,
            "trainer": "leaky",
            "hyperparams": self.settings("trainer"),
            "dataset": {"source": "leaky", "batch_size": 4, **self.settings("data")},
            "callbacks": [{"use": "leaky", **self.settings("callback")}, "csv-metrics"],
            "reporters": ["terminal", {"use": "leaky", **self.settings("reporter")}],
            "uploaders": [{"use": "leaky", **self.settings("uploader")}],
            "resolvers": [{"use": "leaky", **self.settings("resolver")}],
            "inputs": {"vocabulary": "vocab.txt"},
            "samples": [{"prompt": "a"}],
            "max_steps": 4,
            "metric_every": 1,
            "checkpoint_every": 2,
            "sample_every": 2,
            "device": "cpu",
            "grace_seconds": 5,
            **keys,
        }
        path = self.path / f"{run_id}.json"
        path.write_text(json.dumps(job))
        return path

    def start(self, *arguments: str | Path, **environment: str) -> "subprocess.Popen[str]":
        process = hostcore(
            arguments,
            cwd=self.path,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def end(self, process: "subprocess.Popen[str]") -> Said:
        return said_by(process)

    def command(self, *arguments: str | Path, **environment: str) -> Said:
        return self.end(self.start(*arguments, **environment))

    def run_dir(self, run_id: str) -> Path:
        return self.path / "runs" / run_id

    def shown_in(self, text: bytes) -> list[str]:
        return shown_in(text)

    def require_none(self, *finished: Said) -> None:
        """Nothing is shown by a command, nor by any file below the folder but what plugins have written themselves."""
        for one in finished:
            assert shown_in(one.out.encode()) == []
            assert shown_in(one.err.encode()) == []
        found = {}
        for path in self.path.rglob("*"):
            own = {"checkpoints", "samples", "csv-metrics"} & set(path.relative_to(self.path).parts[:-1])
            if path.is_file() and not own and (values := shown_in(path.read_bytes())):
                found[str(path.relative_to(self.path))] = values
        assert found == {}

    def clean_up(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()


@pytest.fixture
def leaks(tmp_path: Path, site: Any) -> Iterator[Leaks]:
    site.install(
        "leaky-plugins",
        modules={"leaky.py": (HERE / "leaky.py").read_text()},
        entry_points={
            "hostcore.trainers": {"leaky": "leaky:Trainer"},
            "hostcore.data_sources": {"leaky": "leaky:Source"},
            "hostcore.callbacks": {"leaky": "leaky:Callback"},
            "hostcore.reporters": {"leaky": "leaky:Reporter"},
            "hostcore.uploaders": {"leaky": "leaky:Uploader"},
            "hostcore.resolvers": {"leaky": "leaky:Resolver"},
        },
    )
    planted = tmp_path / "planted"
    planted.mkdir()
    environment = {name: value for name, value in site.environment.items() if not name.startswith("HOSTCORE_")}
    environment["HOSTCORE_CACHE_DIR"] = str(tmp_path / "cache")
    references = []
    for number, value in enumerate(PLANTED):
        if number % 2:
            (planted / str(number)).write_text(f"{value}\n")
            references.append({"$secret": f"file:{planted}/{number}"})
        else:
            environment[f"PLANTED_{number}"] = value
            references.append({"$secret": f"env:PLANTED_{number}"})
    project = tmp_path / "project"
    project.mkdir()
    (project / "vocab.txt").write_text("a b c\n")
    made = Leaks(project, environment, references)
    yield made
    made.clean_up()
