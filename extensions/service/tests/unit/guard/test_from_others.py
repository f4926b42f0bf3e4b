"""Everything that a job from others may not say is told at once."""

from __future__ import annotations

from typing import Any

import pytest

from hostcore.errors import Errors
from hostcore.supervisor.operator_file import HttpSettings
from hostcore_service.guard.environment import RESERVED, wrong_variable
from hostcore_service.guard.from_others import require_allowed
from hostcore_service.train.mapping import MappedJob


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
        require_allowed(job, http)
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
    require_allowed({"environment": {"requirements": [requirement], "python": "3.12"}}, http)


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
    ],
)
def test_a_package_that_comes_from_elsewhere_is_refused(requirement: object) -> None:
    http = HttpSettings(requirements=("my-trainer",))
    with pytest.raises(Errors) as caught:
        require_allowed({"environment": {"requirements": [requirement]}}, http)
    assert "/environment/requirements/0" in {one.pointer for one in caught.value.errors}


@pytest.mark.parametrize(
    "index",
    [
        *("https://index.example/other", "https://index.example/simple/", "https://index.example", "own"),
        *("https://evil.example/https://index.example/simple", "file:///srv/wheels", "https://evil.example/simple"),
    ],
)
def test_a_job_names_no_index_but_those_that_the_operator_opens(index: str) -> None:
    http = HttpSettings(requirements=("ok",), indexes=("https://index.example/simple", "file:///srv/index"))
    require_allowed({"environment": {"requirements": ["ok"], "indexes": list(http.indexes)}}, http)
    for opened in (http, HttpSettings(requirements=("ok",))):
        with pytest.raises(Errors) as caught:
            require_allowed({"environment": {"requirements": ["ok"], "indexes": [index]}}, opened)
        (error,) = caught.value.errors
        assert error.pointer == "/environment/indexes/0"


@pytest.mark.parametrize("python", ["/tmp/evil/python", "./python", "python", "cpython@/tmp/evil", "3.12\n", ""])
def test_a_python_is_a_version(python: str) -> None:
    with pytest.raises(Errors) as caught:
        require_allowed({"environment": {"requirements": ["ok"], "python": python}}, HttpSettings(requirements=("ok",)))
    (error,) = caught.value.errors
    assert error.pointer == "/environment/python"


def test_an_operator_may_open_interpreters() -> None:
    job = {"environment": {"interpreter": "/srv/trainers/old/bin/python"}}
    require_allowed(job, HttpSettings(interpreters=("/srv/trainers/*/bin/python",)))
    with pytest.raises(Errors):
        require_allowed(job, HttpSettings(interpreters=("/srv/others/*",)))
    astray = {"environment": {"interpreter": "/srv/trainers/../../tmp/evil/bin/python"}}
    with pytest.raises(Errors):
        require_allowed(astray, HttpSettings(interpreters=("/srv/trainers/*/bin/python",)))


@pytest.mark.parametrize("trainer", ["process", "hostcore-builtin-plugins/process", {"use": "process"}])
def test_a_program_of_the_job_s_choice_is_code_of_its_own(trainer: object) -> None:
    with pytest.raises(Errors) as caught:
        require_allowed({"trainer": trainer}, HttpSettings())
    (error,) = caught.value.errors
    assert (error.pointer, "runs a program of the job's choice" in error.message) == ("/trainer", True)
    require_allowed({"trainer": trainer}, HttpSettings(import_paths=True))


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
        require_allowed({"resources": {"env": {name: "x"}}}, HttpSettings(env=("*",)))


def test_other_variables_are_the_operators_to_open() -> None:
    require_allowed({"resources": {"env": {"EXPERIMENT_NAME": "a", "WANDB_MODE": "offline"}}}, HttpSettings(env=("*",)))


def test_a_value_of_a_variable_is_bounded() -> None:
    assert wrong_variable("A", "x" * 32_768) is None
    assert wrong_variable("A", "x" * 32_769) is not None
    assert wrong_variable("A", "a\0b") is not None
    assert wrong_variable("A", 3) is None  # for the converter to tell


@pytest.mark.parametrize("key", ["labels", "annotations"])
def test_the_keys_of_labels_and_annotations_are_the_operators_to_close(key: str) -> None:
    notes = {key: {"team/vision": "a", "sidecar.istio.io/inject": "b"}}
    require_allowed(notes, HttpSettings())
    with pytest.raises(Errors) as caught:
        require_allowed(notes, HttpSettings(**{key: ("team/*", "Sidecar*")}))
    assert [one.pointer for one in caught.value.errors] == [f"/{key}/sidecar.istio.io~1inject"]


def test_what_the_service_notes_itself_is_not_asked_about() -> None:
    job = {"trainer": "x", "hyperparams": {"model_id": "m"}, "annotations": {}}
    noted = MappedJob(document=job, name="x", origins={}).without_model_id().document
    assert noted["annotations"]
    require_allowed(noted, HttpSettings(annotations=()))


def test_the_reserved_names_are_written_as_they_are_compared() -> None:
    assert [name for name in RESERVED if name != name.upper()] == []


def test_whether_import_paths_are_allowed_is_the_operator_s_to_say() -> None:
    with pytest.raises(Errors) as caught:
        require_allowed({"import_paths": True}, HttpSettings())
    (error,) = caught.value.errors
    assert error.pointer == "/import_paths"
    require_allowed({"import_paths": False}, HttpSettings())
    require_allowed({"import_paths": True}, HttpSettings(import_paths=True))


@pytest.mark.parametrize("name", ["chaos", "hostcore-chaos/chaos", "Hostcore_Chaos/chaos"])
@pytest.mark.parametrize("key", ["callbacks", "uploaders"])
def test_faults_are_the_operator_s_to_allow(key: str, name: str) -> None:
    job = {key: [{"use": name, "faults": ["kill@step=1"]}]}
    with pytest.raises(Errors) as caught:
        require_allowed(job, HttpSettings())
    (error,) = caught.value.errors
    assert (error.pointer, "injects faults" in error.message) == (f"/{key}/0", True)
    require_allowed(job, HttpSettings(chaos=True))
