"""Seven words of the service in four of the specification."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hostcore_service.store.job import StoredJob
from hostcore_service.train.router import status_of

KUBERNETES = "hostcore-builtin-plugins/kubernetes-pytorchjob"


@pytest.mark.parametrize(
    ("status", "detail", "launcher", "expected"),
    [
        ("submitted", "", KUBERNETES, ("submitted", "PyTorchJob submitted")),
        ("running", "", KUBERNETES, ("running", "PyTorchJob pods active")),
        ("succeeded", "", KUBERNETES, ("succeeded", "PyTorchJob completed")),
        ("failed", "", KUBERNETES, ("failed", "PyTorchJob failed")),
        ("failed", "OOMKilled", KUBERNETES, ("failed", "OOMKilled")),
        ("running", "", "kubernetes-trainjob", ("running", "TrainJob pods active")),
        ("running", "", "slurm", ("running", "Job running")),
        ("submitted", "waits for a node", "slurm", ("submitted", "waits for a node")),
        ("cancelled", "by ada", "local", ("failed", "cancelled: by ada")),
        ("preempted", "", "local", ("failed", "preempted")),
        ("lost", "no sign of life", "local", ("failed", "lost: no sign of life")),
    ],
)
def test_a_job_is_shown_in_the_words_of_the_specification(
    status: str, detail: str, launcher: str, expected: tuple[str, str], a_job: Callable[..., StoredJob]
) -> None:
    shown = status_of(a_job("a", status=status, detail=detail, launcher=launcher))
    assert (shown.status, shown.detail) == expected


@pytest.mark.parametrize(
    ("phase", "launcher", "detail"),
    [
        ("launched", KUBERNETES, "PyTorchJob created"),
        ("launching", KUBERNETES, "PyTorchJob submitted"),
        ("queued", "slurm", "Job created"),
    ],
)
def test_what_has_no_object_yet_is_not_said_to_be_created(
    phase: str, launcher: str, detail: str, a_job: Callable[..., StoredJob]
) -> None:
    shown = status_of(a_job("a", launcher=launcher, phase=phase), just_created=True)
    assert (shown.status, shown.detail) == ("submitted", detail)
