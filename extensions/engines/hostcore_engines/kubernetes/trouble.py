"""Obstacles and ends of a job's pods, with Kubernetes' reasons."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

Object = Mapping[str, Any]

#: Waiting for these is how every container begins.
_ORDINARY: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
#: Reasons that are less specific than the exit code.
_UNSPECIFIC: Final = frozenset({"", "Error", "Completed"})
_EXIT_CODES: Final = {2: "the job is invalid", 3: "a policy refused the job"}
_LAST_WORDS: Final = 300


@attrs.frozen(kw_only=True)
class Trouble:
    """Obstacle or end of a pod."""

    #: Kubernetes' reason: ``OOMKilled``, ``Unschedulable``, ``ImagePullBackOff``.
    reason: str
    message: str
    pod: str
    #: Whether it is over.
    ended: bool
    #: Whether Kubernetes has a reason, and not the process an exit code.
    by_kubernetes: bool = True

    def __str__(self) -> str:
        told = f": {self.message}" if self.message else ""
        return f"{self.reason} (pod {self.pod}){told}"


def troubles_of(pods: Sequence[Object]) -> list[Trouble]:
    """Return the troubles of pods, those that ended first."""
    found = [trouble for pod in pods for trouble in _of_pod(pod)]
    return sorted(found, key=lambda trouble: not trouble.ended)


def exit_code_of(pod: Object, container: str) -> int | None:
    """The exit code of a container that has ended; None if it has not, or if that is not known."""
    for status in _containers(pod):
        if status.get("name") == container:
            terminated = (status.get("state") or {}).get("terminated")
            return None if terminated is None else int(terminated.get("exitCode", 0))
    return None


def _of_pod(pod: Object) -> Iterator[Trouble]:
    name, status = str(pod["metadata"]["name"]), pod.get("status") or {}
    if reason := status.get("reason"):  # Evicted, NodeLost, NodeShutdown, Preempting
        yield Trouble(reason=reason, message=_line(status.get("message")), pod=name, ended=True)
        return
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            reason = condition.get("reason") or "Unschedulable"
            yield Trouble(reason=reason, message=_line(condition.get("message")), pod=name, ended=False)
    for container in _containers(pod):
        yield from _of_container(container, name)


def _of_container(container: Object, pod: str) -> Iterator[Trouble]:
    state = container.get("state") or {}
    waiting, terminated = state.get("waiting") or {}, state.get("terminated")
    if waiting.get("reason", "") not in _ORDINARY:
        before = (container.get("lastState") or {}).get("terminated")
        told = "; ".join(filter(None, [_line(waiting.get("message")), _end(before) if before else ""]))
        yield Trouble(reason=waiting["reason"], message=told, pod=pod, ended=False)
    elif terminated and terminated.get("exitCode"):
        code, reason = terminated["exitCode"], terminated.get("reason") or ""
        unspecific = reason in _UNSPECIFIC
        yield Trouble(
            reason=f"exit code {code}" if unspecific else reason,
            message=_end(terminated),
            pod=pod,
            ended=True,
            by_kubernetes=not unspecific,
        )


def _end(terminated: Object) -> str:
    code, reason = terminated.get("exitCode"), terminated.get("reason") or ""
    if reason == "OOMKilled":
        return "it took more memory than its limit; raise resources.memory_per_node_gb"
    parts = [_EXIT_CODES.get(code, "") if isinstance(code, int) else "", _last_words(terminated.get("message"))]
    return ": ".join(filter(None, parts))


def _containers(pod: Object) -> Iterable[Object]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _last_words(text: object) -> str:
    """The last line of what the container printed, which Kubernetes puts there."""
    lines = str(text or "").strip().splitlines()
    return lines[-1].strip()[-_LAST_WORDS:] if lines else ""


def _line(text: object) -> str:
    return " ".join(str(text or "").split())
