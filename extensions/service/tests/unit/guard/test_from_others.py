"""Attacks of a job from others, and jobs that the operator's file lets in."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from hostcore.errors import Errors
from hostcore.plugins.installed import Discovered, discover
from hostcore.supervisor.operator_file import HttpSettings
from hostcore_hookspecs.kinds import KINDS
from hostcore_service.guard.from_others import require_allowed
from hostcore_service.train.mapping import MappedJob

DISCOVERED = discover()
#: Keys of ``[http]``, and jobs that they are for.
Case = tuple[dict[str, Any], Sequence[dict[str, Any]]]


def errors(job: dict[str, Any], opened: dict[str, Any], discovered: Discovered = DISCOVERED) -> list[tuple[str, str]]:
    """Return the place and the message of everything that is refused."""
    try:
        require_allowed(job, HttpSettings(**opened), discovered)
    except Errors as raised:
        return [(str(one.pointer), one.message) for one in raised.errors]
    return []


def job_with(pointer: str, value: Any) -> dict[str, Any]:
    """Return a job with a value in a place."""
    for part in reversed(pointer[1:].split("/")):
        value = [value] if part == "0" else {part: value}
    job: dict[str, Any] = value
    return job


def jobs_with(pointers: str, values: Sequence[Any]) -> list[dict[str, Any]]:
    return [job_with(*one) for one in itertools.product(pointers.split(), values)]


def packages(*names: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"environment": {"requirements": [name], **more}} for name in names]


ELSEWHERE = packages(
    *(
        "my-trainer @ https://evil.example/x.whl",
        "my-trainer@https://evil.example/x.whl",
        "./my-trainer",
        "-r my-trainer",
    ),
    *("/srv/my-trainer", "https://evil.example/my-trainer.whl", "--index-url=https://evil.example", "my-trainer-evil"),
    *("my-trainer\nevil", "my-trainer==1; os_name=='x'\nevil", "", 7, None, "my-trainer\r", "my-trainer>=\n1"),
    *(f"my-trainer>=1{line_end}evil" for line_end in "\r\f\v\x1c\x1d\x1e\x85\u2028\u2029"),
    *("my-trainer \\", "my-trainer # evil", "my-trainer --hash=sha256:0", "my-trainer --index-url=https:\\\\evil"),
    *("m\uff59-trainer", "my-trainer[\r]", "${EVIL}", "my-trainer>=1 evil"),
)
INDEX, FILES = "https://index.example/simple", "file:///srv/index"
INDEXES = ("https://index.example/other", f"{INDEX}/", "https://index.example", "own", f"https://evil.example/{INDEX}")
INDEXES += ("file:///srv/wheels", "https://evil.example/simple")
PYTHONS = ("/tmp/evil/python", "./python", "python", "cpython@/tmp/evil", "3.12\n", "")
VARIABLES = [
    *(
        "LD_PRELOAD",
        "PATH",
        "PYTHONPATH",
        "HOSTCORE_RUNS_DIR",
        "TRAINER_API_TOKEN",
        "RANK",
        "WORLD_SIZE",
        "MASTER_ADDR",
    ),
    *("PET_NNODES", "TORCHELASTIC_RUN_ID", "KUBERNETES_SERVICE_HOST", "AWS_ENDPOINT_URL_S3", "https_proxy", "BASH_ENV"),
    *("", "1A", "A B", "A=B", "A\n", "Ä", "A" * 256),
]
#: As resolution finds them: names of distributions are compared as package indexes do.
CODE = [
    *("process", "hostcore-builtin-plugins/process", "HOSTCORE-BUILTIN-PLUGINS/process"),
    *("Hostcore_Builtin.Plugins/process", "hostcore--builtin__plugins/process"),
    *("lightning", "Hostcore_Lightning/lightning", "hostcore.lightning/nemo"),
]
RUNS_CODE = [*jobs_with("/trainer", CODE), {"trainer": {"use": "process"}}]
FAULTS = [
    {key: [{"use": name, "faults": ["kill@step=1"]}]}
    for key in ("callbacks", "uploaders")
    for name in ("chaos", "hostcore-chaos/chaos", "Hostcore_Chaos/chaos")
]
PARQUET = jobs_with(
    "/dataset/source /validation/source /test/source",
    ["parquet", "hostcore-builtin-plugins/parquet", "Hostcore_Builtin.Plugins/parquet"],
)
INTERPRETER = {"environment": {"interpreter": "/srv/trainers/old/bin/python"}}
ASTRAY = {"environment": {"interpreter": "/srv/trainers/../../tmp/evil/bin/python"}}
NOTES = {key: {"team/vision": "a", "sidecar.istio.io/inject": "b"} for key in ("labels", "annotations")}

#: What the operator opens, the jobs, and what the one error of each says.
ATTACKS: dict[str, tuple[dict[str, Any], Sequence[dict[str, Any]], str]] = {
    "a package from elsewhere": ({"requirements": ["my-trainer"]}, ELSEWHERE, ""),
    "an index": (
        {"requirements": ["ok"], "indexes": (INDEX, FILES)},
        [*(one for name in INDEXES for one in packages("ok", indexes=[name]))],
        "the index is not one that the operator allows",
    ),
    "an index, of none": ({"requirements": ["ok"]}, packages("ok", indexes=[INDEX]), ""),
    "a python": (
        {"requirements": ["ok"]},
        [*(one for name in PYTHONS for one in packages("ok", python=name))],
        "is no version of Python",
    ),
    "another interpreter": ({"interpreters": ["/srv/others/*"]}, [INTERPRETER], ""),
    "an interpreter astray": ({"interpreters": ["/srv/trainers/*/bin/python"]}, [ASTRAY], ""),
    "control characters": (
        {"env": ["*"]},
        jobs_with(
            "/hyperparams/a/0 /annotations/a /owner /labels/a /dataset/sql /callbacks/0/a /resources/env/A",
            [f"a{control}b" for control in "\0\x01\x07\x0b\x0c\x1b\x1c\x7f\x80\x85\x9f"],
        ),
        "",
    ),
    "lines in files and commands": (
        {},
        jobs_with(
            "/owner /labels/a /resources/namespace /dataset/columns/0 /release_ref /run_id /tags/0",
            [f"a{line_end}b" for line_end in "\n\r\t\u2028\u2029"],
        ),
        "control character or a line separator",
    ),
    "lines in a key": ({}, [{"hyperparams": {"a\nb": 1}}], "the key has a control character"),
    "the source of a part": (
        {"plugins": ["digits", "mix"]},
        [{"dataset": {"source": "mix", "of": [{"source": source}]}} for source in ("csv", "evil:Source", "lance")],
        "",
    ),
    "a module alone": ({"plugins": ["*"]}, jobs_with("/trainer", ["pytest", "hostcore_toolkit"]), "is an import path"),
    "code": ({"plugins": ["*"]}, RUNS_CODE, "runs code or programs"),
    "code by name": ({"plugins": ["process", "lightning", "nemo"]}, RUNS_CODE, "runs code or programs"),
    "code by pattern": ({"plugins": ["hostcore-*/*"]}, RUNS_CODE, "runs code or programs"),
    "other code": ({"plugins": ["*", "hostcore-builtin-plugins/process"]}, [{"trainer": "lightning"}], "runs code"),
    "import paths": ({}, [{"import_paths": True}], "import paths are not allowed here"),
    "faults": ({}, FAULTS, "injects faults"),
    "plugins": ({"plugins": []}, PARQUET, "not among those that the operator allows"),
    "other plugins": ({"plugins": ["csv", "other/parquet"]}, PARQUET, "not among those that the operator allows"),
    "variables": ({"env": ["*"]}, [{"resources": {"env": {name: "x"}}} for name in VARIABLES], ""),
    "long values": ({"env": ["*"]}, [{"resources": {"env": {"A": value}}} for value in ("x" * 32_769, "a\0b")], ""),
    "labels": ({"labels": ["team/*", "Sidecar*"]}, [NOTES], 'the label "sidecar.istio.io/inject"'),
    "annotations": ({"annotations": ["team/*", "Sidecar*"]}, [NOTES], 'the annotation "sidecar.istio.io/inject"'),
}
#: Everything that is refused at once.
EVERYTHING: dict[str, Any] = {
    "trainer": "here:Trainer",
    "callbacks": ["throughput", {"use": "evil"}],
    "environment": {
        "lock": "pylock.toml",
        "interpreter": "/opt/python",
        "requirements": ["ok>=2", "evil", "ok @ file:///x"],
    },
    "resources": {"image": "evil/image", "env": {"A": "1", "LD_PRELOAD": "x", "OK_1": "y"}},
    "reporters": [{"use": "webhook", "token": {"$secret": "env:HOME"}, "url": "http://127.0.0.1"}],
    "weights": "/etc/passwd",
}
OWN = MappedJob(document={"hyperparams": {"model_id": "m"}, "annotations": {}}, name="x", origins={}).without_model_id()

LET_IN: dict[str, Case] = {
    "packages": (
        {"requirements": ["my-trainer", "team-*"]},
        packages(
            "my-trainer",
            "My_Trainer",
            "my-trainer >=2,<3",
            "my-trainer[gpu, all]==2.0",
            "team.special-2",
            python="3.12",
        ),
    ),
    "indexes": ({"requirements": ["ok"], "indexes": (INDEX, FILES)}, packages("ok", indexes=[INDEX, FILES])),
    "interpreters": ({"interpreters": ["/srv/trainers/*/bin/python"]}, [INTERPRETER]),
    "lines for people and plugins": (
        {},
        jobs_with("/hyperparams/template /samples/0/prompt /annotations/a /dataset/sql", ["first\n\tsecond\r\nthird"]),
    ),
    "import paths": (
        {"import_paths": True},
        [*RUNS_CODE, *jobs_with("/trainer", ["pytest", "hostcore_toolkit"]), {"import_paths": True}],
    ),
    "no import paths": ({}, [{"import_paths": False}]),
    "code that is written out": (
        {"plugins": ["*", "Hostcore.Builtin_Plugins/process"]},
        jobs_with("/trainer", CODE[:4]),
    ),
    "plugins": ({"plugins": ["parquet"]}, PARQUET),
    "plugins of a distribution": ({"plugins": ["hostcore_builtin_plugins/*"]}, PARQUET),
    "plugins spelled otherwise": ({"plugins": ["HOSTCORE.builtin-plugins/parquet"]}, PARQUET),
    "faults": ({"chaos": True}, FAULTS),
    "variables": (
        {"env": ["*"]},
        [{"resources": {"env": {"EXPERIMENT_NAME": "a", "WANDB_MODE": "offline", "A": "x" * 32_768, "B": 3}}}],
    ),
    "labels and annotations": ({}, [NOTES]),
    "annotations of the service": ({"annotations": []}, [dict(OWN.document)]),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_at_its_place_and_nowhere_else(attack: str) -> None:
    opened, jobs, says = ATTACKS[attack]
    for job in jobs:
        found = errors(job, opened)
        assert len({pointer for pointer, _ in found}) == 1, (job, found)
        pointer, message = found[0]
        assert says in message, (job, message)
        assert has(job, pointer), (job, pointer)


def has(job: Any, pointer: str) -> bool:
    """Whether a job has something in a place."""
    for part in pointer[1:].split("/"):
        job = job[int(part)] if isinstance(job, list) else job[part.replace("~1", "/").replace("~0", "~")]
    return True


def test_everything_is_refused_at_once_with_its_place() -> None:
    opened = {"plugins": ["throughput", "webhook"], "env": ["OK_*"], "requirements": ["ok"]}
    assert sorted(pointer for pointer, _ in errors(EVERYTHING, opened)) == [
        *("/callbacks/1", "/environment/interpreter", "/environment/lock"),
        *("/environment/requirements/1", "/environment/requirements/2", "/reporters/0/token", "/reporters/0/url"),
        *("/resources/env/A", "/resources/env/LD_PRELOAD", "/resources/image", "/trainer", "/weights"),
    ]


@pytest.mark.parametrize("what", LET_IN)
def test_what_the_operator_opens_is_let_in(what: str) -> None:
    opened, jobs = LET_IN[what]
    for job in jobs:
        assert errors(job, opened) == [], job


def test_a_name_that_two_distributions_have_is_open_with_its_distribution_alone(site_here: Any) -> None:
    site_here.install("their-sources", modules={}, entry_points={"hostcore.data_sources": {"parquet": "theirs:Source"}})
    discovered = discover()
    both = {"plugins": ["parquet", "their_sources/parquet"]}
    for opened, name, is_open in (
        ({"plugins": ["parquet"]}, "their-sources/parquet", False),
        (both, "Their_Sources/parquet", True),
        (both, "their-sources/parquet", True),
        ({"plugins": ["parquet"]}, "hostcore_builtin_plugins/parquet", True),
    ):
        assert (errors({"dataset": {"source": name}}, opened, discovered) == []) is is_open, name


@pytest.mark.parametrize("key", ["callbacks", "reporters", "uploaders", "resolvers", "policies", "launcher"])
def test_a_plugin_of_any_kind_may_run_what_a_job_names(key: str, site_here: Any) -> None:
    (group,) = {one.group for one in KINDS.values()} & {f"hostcore.{key}", f"hostcore.{key}s"}
    shell = {"shell": "my_shells:Shell"}
    site_here.install("my-shells", modules={}, entry_points={group: shell, "hostcore.runs_code": shell})
    job = {key: "shell" if key == "launcher" else [{"use": "My_Shells/shell"}]}
    ((_, message),) = errors(job, {}, discover())
    assert "runs code or programs" in message
    assert errors(job, {"plugins": ["my-shells/shell"]}, discover()) == []
