"""Requests and answers as the OpenAPI document shows them: one job, from its submission to its end."""

from typing import Any, Final

#: The body of ``POST /v1/jobs``.
BODY: Final[dict[str, Any]] = {
    "run_id": "digits-1",
    "trainer": "digits",
    "dataset": {"parquet_paths": ["s3://team-data/digits/train.parquet"], "batch_size": 64},
    "max_steps": 32,
    "checkpoint_every": 20,
    "checkpoint_base_uri": "s3://team-runs",
    "resources": {"gpus_per_node": 1, "image": "registry.example/digits:1.4"},
    "owner": "ada",
    "labels": {"team": "letters"},
}
#: It was recorded.
SUBMITTED: Final[dict[str, Any]] = {
    "run_id": "digits-1",
    "name": "digits-1",
    "status": "submitted",
    "detail": "waits to be launched",
    "cancelling": False,
    "trainer": "digits",
    "launcher": "hostcore-engines/kubernetes-pytorchjob",
    "engine_id": None,
    "owner": "ada",
    "labels": {"team": "letters"},
    "submitted_by": "token",
    "step": 0,
    "max_steps": 32,
    "attempt": 0,
    "launches": 1,
    "exit_code": None,
    "submitted_ms": 1_795_280_974_978,
    "started_ms": None,
    "ended_ms": None,
    "seen_ms": None,
    "used": None,
}
_BEGUN: Final = {"engine_id": "digits-1", "attempt": 1, "started_ms": 1_795_280_978_784}
RUNNING: Final = {**SUBMITTED, **_BEGUN, "status": "running", "detail": "", "step": 20, "seen_ms": 1_795_280_987_561}
CANCELLING: Final = {**RUNNING, "cancelling": True}
CANCELLED: Final = {
    **RUNNING,
    "status": "cancelled",
    "detail": "not needed",
    "exit_code": 130,
    "ended_ms": 1_795_280_989_012,
}
RESUMED: Final = {**SUBMITTED, "step": 20, "attempt": 1, "launches": 2}
PAGE: Final = {"jobs": [RUNNING], "next": None, "unknown": None}
DETAIL: Final = {
    **RUNNING,
    "sees_run_dir": False,
    "job": BODY,
    "run": {"status": "running", "step": 20, "metrics": {"train/loss": 0.42}, "eta_seconds": 4.5},
}
VALIDATED: Final = {
    "job": BODY,
    "plan": {
        "plugins": [{"kind": "trainer", "name": "digits", "distribution": "hostcore-digits", "version": "0.1.0"}],
        "checked": {"total_steps": 32, "steps_per_epoch": 16, "num_rows": 1085, "rows_left_out": 61, "warnings": []},
        "unchecked": ["the job's device, which the machine of the service has not (no GPU), and what needs it"],
        "launch": {
            "summary": "PyTorchJob digits-1 in namespace ml, 1 node with 1 GPU",
            "document": '{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", …}\n',
        },
    },
}
CHECKPOINTS: Final = {
    "checkpoints": [
        {"step": 20, "epoch": 1, "final": False, "attempt": 1, "bytes": 723_679, "saved_ms": 1_795_280_987_561}
    ]
}
CHECKPOINT: Final = {
    "step": 20,
    "epoch": 1,
    "final": False,
    "attempt": 1,
    "files": [{"path": "host.json", "size": 1796, "sha256": "0bf7fe82" * 8}],
}
ARTIFACTS: Final = {
    "artifacts": [{"path": "plots/loss.png", "bytes": 32_831, "modified_ms": 1_795_280_996_569}],
    "truncated": False,
}
