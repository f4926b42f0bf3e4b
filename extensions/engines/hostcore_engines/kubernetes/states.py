"""Status of a job: from the operator's object, its pods, and the run itself."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from hostcore_builtin_plugins.run_result import result_of
from hostcore_engines.kubernetes.labels import CANCELLED
from hostcore_engines.kubernetes.trouble import troubles_of
from hostcore_hookspecs import LaunchHandle, LaunchStatus

Object = Mapping[str, Any]

#: Exit codes of a run that has ended on purpose.
_ENDS: Final[Mapping[int | None, str]] = {75: "preempted", 130: "cancelled"}
_ACTIVE_PHASES: Final = frozenset({"Pending", "Running"})


@attrs.frozen(kw_only=True)
class Conditions:
    """Conditions of a job, under any operator: each is its message, or None if it does not hold."""

    succeeded: str | None = None
    failed: str | None = None
    running: str | None = None
    suspended: str | None = None
    #: Message of a job without any of these conditions.
    submitted: str


def condition(job: Object, name: str, default: str) -> str | None:
    """The message of a condition that holds, or a default for one without; None if it does not hold."""
    for one in (job.get("status") or {}).get("conditions") or ():
        if one.get("type") == name and one.get("status") == "True":
            return str(one.get("message") or default)
    return None


def is_over(conditions: Conditions) -> bool:
    """Return whether the conditions are final."""
    return conditions.succeeded is not None or conditions.failed is not None


def is_cancelled(job: Object) -> bool:
    """Return whether a job was cancelled; it may not have ended yet."""
    return CANCELLED in (job["metadata"].get("annotations") or {})


def status_of(
    job: Object,
    conditions: Conditions,
    pods: Sequence[Object],
    *,
    exit_code: int | None,
    result: LaunchStatus | None,
) -> LaunchStatus:
    """Return the status of a job.

    :param exit_code: Of the first node; None if it has not ended, or its pod is gone.
    :param result: Recorded end of the run; None if it has not ended, or its directory is not seen.
    """
    if conditions.succeeded is not None:
        if result is not None:
            return attrs.evolve(result, message=result.message or conditions.succeeded)
        return LaunchStatus(status="succeeded", message=conditions.succeeded, exit_code=0)
    if is_cancelled(job):
        return _cancelled(pods, ended=is_over(conditions), result=result)
    if conditions.failed is not None:
        return _failed(conditions.failed, pods, exit_code, result)
    told = "; ".join(str(trouble) for trouble in troubles_of(pods)[:3])
    if conditions.running is not None:
        return LaunchStatus(status="running", message=told or conditions.running)
    return LaunchStatus(status="submitted", message=told or conditions.suspended or conditions.submitted)


def gone(handle: LaunchHandle, kind: str) -> LaunchStatus:
    """Return the status of a job that the cluster does not know any more."""
    name = f"{handle.details['namespace']}/{handle.id}"
    return own_result(handle) or LaunchStatus(
        status="lost", message=f"the {kind} {name} is gone: deleted, or its time to be kept is over"
    )


def own_result(handle: LaunchHandle) -> LaunchStatus | None:
    """Return the recorded end of the run; None if it has not ended, or this machine does not see it."""
    run_dir = handle.details.get("run_dir")
    return result_of(run_dir, handle.details["earlier_result"]) if run_dir else None


def _cancelled(pods: Sequence[Object], *, ended: bool, result: LaunchStatus | None) -> LaunchStatus:
    if not ended and any((pod.get("status") or {}).get("phase") in _ACTIVE_PHASES for pod in pods):
        return LaunchStatus(status="running", message="it was asked to stop, and writes its checkpoint")
    if result is not None and result.status in ("succeeded", "failed", "lost"):
        return result  # it had ended before it received the signal
    # Kubernetes has no signal but SIGTERM, which a run records as a preemption.
    return LaunchStatus(status="cancelled", message="cancelled", exit_code=result.exit_code if result else None)


def _failed(told: str, pods: Sequence[Object], code: int | None, result: LaunchStatus | None) -> LaunchStatus:
    troubles = [trouble for trouble in troubles_of(pods) if trouble.ended]
    if result is not None:
        # A killed run has no record of the cause.
        killed = [str(trouble) for trouble in troubles if trouble.by_kubernetes][:1]
        if result.status != "failed" or not killed:
            return result
        return attrs.evolve(result, message="; ".join([*killed, result.message]))
    if code in _ENDS:
        return LaunchStatus(status=_ENDS[code], message=told, exit_code=code)
    message = "; ".join([*(str(trouble) for trouble in troubles[:2]), told])
    return LaunchStatus(status="failed", message=message, exit_code=code)
