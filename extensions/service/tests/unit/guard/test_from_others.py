"""Everything that a job from others may not say is told at once."""

from __future__ import annotations

from typing import Any

import pytest

from hostcore.errors import Errors
from hostcore.plugins.installed import discover
from hostcore.supervisor.operator_file import HttpSettings
from hostcore_hookspecs.kinds import KINDS
from hostcore_service.guard.environment import RESERVED, wrong_variable
from hostcore_service.guard.from_others import require_allowed
from hostcore_service.train.mapping import MappedJob

DISCOVERED = discover()


def allow(job: dict[str, Any], http: HttpSettings) -> None:
    require_allowed(job, http, DISCOVERED)


def test_everything_is_refused_at_once_with_its_place() -> None:
    job: dict[str, Any] = {
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
    http = HttpSettings(plugins=("throughput", "webhook"), env=("OK_*",), requirements=("ok",))
    with pytest.raises(Errors) as caught:
        allow(job, http)
    assert sorted(str(one.pointer) for one in caught.value.errors) == [
        *("/callbacks/1", "/environment/interpreter", "/environment/lock"),
        *("/environment/requirements/1", "/environment/requirements/2", "/reporters/0/token", "/reporters/0/url"),
        *("/resources/env/A", "/resources/env/LD_PRELOAD", "/resources/image", "/trainer", "/weights"),
    ]


@pytest.mark.parametrize(
    "requirement",
    ["my-trainer", "My_Trainer", "my-trainer >=2,<3", "my-trainer[gpu, all]==2.0", "team.special-2"],
)
def test_an_operator_may_open_packages_by_their_names(requirement: str) -> None:
    http = HttpSettings(requirements=("my-trainer", "team-*"))
    allow({"environment": {"requirements": [requirement], "python": "3.12"}}, http)


@pytest.mark.parametrize(
    "requirement",
    [
        *("my-trainer @ https://evil.example/x.whl", "my-trainer@https://evil.example/x.whl", "./my-trainer"),
        *(
            "/srv/my-trainer",
            "https://evil.example/my-trainer.whl",
            "--index-url=https://evil.example",
            "-r my-trainer",
        ),
        *("my-trainer\nevil", "my-trainer==1; os_name=='x'\nevil", "my-trainer-evil", "", 7, None),
        *(f"my-trainer>=1{line_end}evil" for line_end in "\r\f\v\x1c\x1d\x1e\x85\u2028\u2029"),
        *("my-trainer\r", "my-trainer>=\n1", "my-trainer \\", "my-trainer # evil", "my-trainer --hash=sha256:0"),
        *(
            "my-trainer --index-url=https:\\\\evil",
            "m\uff59-trainer",
            "my-trainer[\r]",
            "${EVIL}",
            "my-trainer>=1 evil",
        ),
    ],
)
def test_a_package_that_comes_from_elsewhere_is_refused(requirement: object) -> None:
    http = HttpSettings(requirements=("my-trainer",))
    with pytest.raises(Errors) as caught:
        allow({"environment": {"requirements": [requirement]}}, http)
    assert "/environment/requirements/0" in {one.pointer for one in caught.value.errors}


CONTROLS = "\0\x01\x07\x0b\x0c\x1b\x1c\x7f\x80\x85\x9f"


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize(
    "pointer",
    ["/hyperparams/a/0", "/annotations/a", "/owner", "/labels/a", "/dataset/sql", "/callbacks/0/a", "/resources/env/A"],
)
def test_no_text_of_a_job_has_a_control_character(pointer: str, control: str) -> None:
    job = job_with(pointer, f"a{control}b")
    with pytest.raises(Errors) as caught:
        allow(job, HttpSettings(env=("*",)))
    assert [one.pointer for one in caught.value.errors] == [pointer]


@pytest.mark.parametrize("line_end", "\n\r\t\u2028\u2029")
@pytest.mark.parametrize(
    "pointer",
    ["/owner", "/labels/a", "/resources/namespace", "/dataset/columns/0", "/release_ref", "/run_id", "/tags/0"],
)
def test_what_comes_into_files_and_commands_is_one_line(pointer: str, line_end: str) -> None:
    with pytest.raises(Errors) as caught:
        allow(job_with(pointer, f"a{line_end}b"), HttpSettings())
    assert pointer in {one.pointer for one in caught.value.errors}


@pytest.mark.parametrize("pointer", ["/hyperparams/template", "/samples/0/prompt", "/annotations/a", "/dataset/sql"])
def test_text_for_people_and_plugins_may_have_lines(pointer: str) -> None:
    allow(job_with(pointer, "first\n\tsecond\r\nthird"), HttpSettings())


def test_a_key_has_no_control_character() -> None:
    with pytest.raises(Errors):
        allow({"hyperparams": {"a\nb": 1}}, HttpSettings())


def job_with(pointer: str, text: str) -> dict[str, Any]:
    """A job with a text in a place."""
    value: Any = text
    for part in reversed(pointer[1:].split("/")):
        value = [value] if part == "0" else {part: value}
    job: dict[str, Any] = value
    return job


@pytest.mark.parametrize(
    "index",
    [
        *("https://index.example/other", "https://index.example/simple/", "https://index.example", "own"),
        *("https://evil.example/https://index.example/simple", "file:///srv/wheels", "https://evil.example/simple"),
    ],
)
def test_a_job_names_no_index_but_those_that_the_operator_opens(index: str) -> None:
    http = HttpSettings(requirements=("ok",), indexes=("https://index.example/simple", "file:///srv/index"))
    allow({"environment": {"requirements": ["ok"], "indexes": list(http.indexes)}}, http)
    for opened in (http, HttpSettings(requirements=("ok",))):
        with pytest.raises(Errors) as caught:
            allow({"environment": {"requirements": ["ok"], "indexes": [index]}}, opened)
        (error,) = caught.value.errors
        assert error.pointer == "/environment/indexes/0"


@pytest.mark.parametrize("python", ["/tmp/evil/python", "./python", "python", "cpython@/tmp/evil", "3.12\n", ""])
def test_a_python_is_a_version(python: str) -> None:
    with pytest.raises(Errors) as caught:
        allow({"environment": {"requirements": ["ok"], "python": python}}, HttpSettings(requirements=("ok",)))
    (error,) = caught.value.errors
    assert error.pointer == "/environment/python"


def test_an_operator_may_open_interpreters() -> None:
    job = {"environment": {"interpreter": "/srv/trainers/old/bin/python"}}
    allow(job, HttpSettings(interpreters=("/srv/trainers/*/bin/python",)))
    with pytest.raises(Errors):
        allow(job, HttpSettings(interpreters=("/srv/others/*",)))
    astray = {"environment": {"interpreter": "/srv/trainers/../../tmp/evil/bin/python"}}
    with pytest.raises(Errors):
        allow(astray, HttpSettings(interpreters=("/srv/trainers/*/bin/python",)))


@pytest.mark.parametrize("module", ["pytest", "hostcore_toolkit"])
def test_a_module_alone_that_is_installed_here_is_an_import_path(module: str) -> None:
    with pytest.raises(Errors) as caught:
        allow({"trainer": module}, HttpSettings(plugins=("*",)))
    (error,) = caught.value.errors
    assert (error.pointer, "is an import path" in error.message) == ("/trainer", True)
    allow({"trainer": module}, HttpSettings(import_paths=True))


#: As resolution finds them: names of distributions are compared as package indexes do.
CODE = [
    *("process", "hostcore-builtin-plugins/process", "hostcore_builtin_plugins/process", {"use": "process"}),
    *("HOSTCORE-BUILTIN-PLUGINS/process", "Hostcore_Builtin.Plugins/process", "hostcore--builtin__plugins/process"),
    *("lightning", "Hostcore_Lightning/lightning", "hostcore.lightning/nemo"),
]


@pytest.mark.parametrize("trainer", CODE)
@pytest.mark.parametrize("plugins", [("*",), ("process", "lightning", "nemo"), ("hostcore-*/*",), ("*/process", "*")])
def test_a_plugin_that_runs_what_a_job_names_is_refused_however_it_is_spelled(
    trainer: object, plugins: tuple[str, ...]
) -> None:
    with pytest.raises(Errors) as caught:
        allow({"trainer": trainer}, HttpSettings(plugins=plugins))
    (error,) = caught.value.errors
    assert (error.pointer, "runs code or programs" in error.message) == ("/trainer", True)
    allow({"trainer": trainer}, HttpSettings(import_paths=True))


@pytest.mark.parametrize("plugin", ["hostcore-builtin-plugins/process", "Hostcore.Builtin_Plugins/process"])
def test_an_operator_may_open_one_plugin_that_runs_what_a_job_names(plugin: str) -> None:
    http = HttpSettings(plugins=("*", plugin))
    for trainer in ("process", "hostcore_builtin_plugins/process"):
        allow({"trainer": trainer}, http)
    with pytest.raises(Errors):
        allow({"trainer": "lightning"}, http)


@pytest.mark.parametrize("name", ["parquet", "hostcore-builtin-plugins/parquet", "Hostcore_Builtin.Plugins/parquet"])
@pytest.mark.parametrize("key", ["dataset", "validation", "test"])
def test_a_plugin_is_open_or_closed_however_the_job_and_the_operator_spell_it(key: str, name: str) -> None:
    job = {key: {"source": name}}
    for patterns in (("parquet",), ("hostcore_builtin_plugins/*",), ("HOSTCORE.builtin-plugins/parquet",)):
        allow(job, HttpSettings(plugins=patterns))
    for patterns in ((), ("csv",), ("other/parquet",)):
        with pytest.raises(Errors) as caught:
            allow(job, HttpSettings(plugins=patterns))
        assert [one.pointer for one in caught.value.errors] == [f"/{key}/source"]


def test_a_name_that_two_distributions_have_is_open_with_its_distribution_alone(site_here: Any) -> None:
    site_here.install("their-sources", modules={}, entry_points={"hostcore.data_sources": {"parquet": "theirs:Source"}})
    discovered = discover()
    with pytest.raises(Errors):
        require_allowed(
            {"dataset": {"source": "their-sources/parquet"}}, HttpSettings(plugins=("parquet",)), discovered
        )
    for name in ("Their_Sources/parquet", "their-sources/parquet"):
        opened = HttpSettings(plugins=("parquet", "their_sources/parquet"))
        require_allowed({"dataset": {"source": name}}, opened, discovered)
    require_allowed(
        {"dataset": {"source": "hostcore_builtin_plugins/parquet"}}, HttpSettings(plugins=("parquet",)), discovered
    )


@pytest.mark.parametrize("key", ["callbacks", "reporters", "uploaders", "resolvers", "policies", "launcher"])
def test_a_plugin_of_any_kind_may_run_what_a_job_names(key: str, site_here: Any) -> None:
    (group,) = {one.group for one in KINDS.values()} & {f"hostcore.{key}", f"hostcore.{key}s"}
    site_here.install(
        "my-shells",
        modules={},
        entry_points={group: {"shell": "my_shells:Shell"}, "hostcore.runs_code": {"shell": "my_shells:Shell"}},
    )
    job = {key: "shell" if key == "launcher" else [{"use": "My_Shells/shell"}]}
    with pytest.raises(Errors) as caught:
        require_allowed(job, HttpSettings(), discover())
    (error,) = caught.value.errors
    assert "runs code or programs" in error.message
    require_allowed(job, HttpSettings(plugins=("my-shells/shell",)), discover())


@pytest.mark.parametrize(
    "name",
    [
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
        *(
            "PET_NNODES",
            "TORCHELASTIC_RUN_ID",
            "KUBERNETES_SERVICE_HOST",
            "AWS_ENDPOINT_URL_S3",
            "https_proxy",
            "BASH_ENV",
        ),
        *("", "1A", "A B", "A=B", "A\n", "Ä", "A" * 256),
    ],
)
def test_no_operator_can_open_what_decides_how_runs_are_started(name: str) -> None:
    with pytest.raises(Errors):
        allow({"resources": {"env": {name: "x"}}}, HttpSettings(env=("*",)))


def test_other_variables_are_the_operators_to_open() -> None:
    allow({"resources": {"env": {"EXPERIMENT_NAME": "a", "WANDB_MODE": "offline"}}}, HttpSettings(env=("*",)))


def test_a_value_of_a_variable_is_bounded() -> None:
    assert wrong_variable("A", "x" * 32_768) is None
    assert wrong_variable("A", "x" * 32_769) is not None
    assert wrong_variable("A", "a\0b") is not None
    assert wrong_variable("A", 3) is None  # for the converter to tell


@pytest.mark.parametrize("key", ["labels", "annotations"])
def test_the_keys_of_labels_and_annotations_are_the_operators_to_close(key: str) -> None:
    notes = {key: {"team/vision": "a", "sidecar.istio.io/inject": "b"}}
    allow(notes, HttpSettings())
    with pytest.raises(Errors) as caught:
        allow(notes, HttpSettings(**{key: ("team/*", "Sidecar*")}))
    assert [one.pointer for one in caught.value.errors] == [f"/{key}/sidecar.istio.io~1inject"]


def test_what_the_service_notes_itself_is_not_asked_about() -> None:
    job = {"trainer": "x", "hyperparams": {"model_id": "m"}, "annotations": {}}
    noted = MappedJob(document=job, name="x", origins={}).without_model_id().document
    assert noted["annotations"]
    allow(noted, HttpSettings(annotations=()))


def test_the_reserved_names_are_written_as_they_are_compared() -> None:
    assert [name for name in RESERVED if name != name.upper()] == []


def test_whether_import_paths_are_allowed_is_the_operator_s_to_say() -> None:
    with pytest.raises(Errors) as caught:
        allow({"import_paths": True}, HttpSettings())
    (error,) = caught.value.errors
    assert error.pointer == "/import_paths"
    allow({"import_paths": False}, HttpSettings())
    allow({"import_paths": True}, HttpSettings(import_paths=True))


@pytest.mark.parametrize("name", ["chaos", "hostcore-chaos/chaos", "Hostcore_Chaos/chaos"])
@pytest.mark.parametrize("key", ["callbacks", "uploaders"])
def test_faults_are_the_operator_s_to_allow(key: str, name: str) -> None:
    job = {key: [{"use": name, "faults": ["kill@step=1"]}]}
    with pytest.raises(Errors) as caught:
        allow(job, HttpSettings())
    (error,) = caught.value.errors
    assert (error.pointer, "injects faults" in error.message) == (f"/{key}/0", True)
    allow(job, HttpSettings(chaos=True))
