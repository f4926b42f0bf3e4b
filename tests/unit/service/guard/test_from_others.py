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
        "environment": {"python": "3.12"},
        "resources": {"image": "evil/image", "env": {"A": "1", "LD_PRELOAD": "x", "OK_1": "y"}},
        "reporters": [{"use": "webhook", "token": {"$secret": "env:HOME"}, "url": "http://127.0.0.1"}],
        "weights": "/etc/passwd",
    }
    http = HttpSettings(plugins=("throughput", "webhook"), env=("OK_*",))
    with pytest.raises(Errors) as caught:
        require_allowed(job, http)
    assert sorted(str(one.pointer) for one in caught.value.errors) == [
        *("/callbacks/1", "/environment", "/reporters/0/token", "/reporters/0/url"),
        *("/resources/env/A", "/resources/env/LD_PRELOAD", "/resources/image", "/trainer", "/weights"),
    ]


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
