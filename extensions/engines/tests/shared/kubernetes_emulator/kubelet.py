"""The kubelet: runs what pods say, as processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
from fork_server import popen

from .api import ApiServer, Key, now

#: Nothing of a container's own is there: these are the machine's.
_SHARED = ("/tmp", "/dev/shm")
#: What an image would have.
_IMAGE = re.compile(r"PATH|PYTHON.*|LANG|LC_.*|LD_.*|COVERAGE_.*|AWS_.*|.*_NUM_THREADS|OBJC_.*|SSL_.*")
_GIVEN_GRACE = 30
_REFERENCE = re.compile(r"\$\$|\$\(([-._A-Za-z0-9]+)\)")


@attrs.define
class Log:
    """What a container printed, a line at a time, with the time of its beginning."""

    lines: list[tuple[float, bytes]] = attrs.field(factory=list)

    def add(self, data: bytes) -> None:
        """Take what was printed just now."""
        for piece in _split(data):
            if self.lines and not self.lines[-1][1].endswith(b"\n"):
                stamp, begun = self.lines[-1]
                self.lines[-1] = (stamp, begun + piece)
            else:
                self.lines.append((time.time(), piece))

    def read(self, how: Mapping[str, str]) -> bytes:
        """What the API server gives."""
        since = time.time() - int(how["sinceSeconds"]) if "sinceSeconds" in how else 0.0
        stamped = how.get("timestamps") == "true"
        return b"".join((_stamp(moment) if stamped else b"") + line for moment, line in self.lines if moment >= since)

    def tail(self) -> str:
        """The last of it, which a pod that failed has as its message."""
        return b"".join(line for _, line in self.lines[-80:])[-2048:].decode(errors="replace")


@attrs.frozen(eq=False)
class Process:
    """A container's process: of Python, a fork of one that has imported torch."""

    started: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.started.pid

    @property
    def returncode(self) -> int | None:
        return self.started.poll()

    async def wait(self) -> int:
        return await asyncio.to_thread(self.started.wait)

    @contextlib.asynccontextmanager
    async def output(self) -> AsyncIterator[asyncio.StreamReader]:
        """What it prints; what it leaves behind when it ends may hold it open."""
        stream = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), self.started.stdout
        )
        try:
            yield stream
        finally:
            transport.close()


@attrs.define(eq=False)
class Container:
    """A running container."""

    process: Process | None = None
    log: Log = attrs.field(factory=Log)
    previous: Log | None = None
    restarts: int = 0
    #: Why the node has killed it.
    killed_for: str = ""
    #: Until when it may end by itself, by the loop's clock.
    deadline: float | None = None


class Kubelet:
    """The only node."""

    def __init__(self, api: ApiServer, folder: Path) -> None:
        self._api = api
        self._folder = folder
        self._containers: dict[Key, Container] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        api.delete_pod, api.read_log = self.delete, self.read_log

    def start(self, pod: dict[str, Any]) -> None:
        """Take over a pod that was made."""
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        problem = _unschedulable(pod)
        scheduled = {"type": "PodScheduled", "status": "False" if problem else "True"}
        if problem:
            self._status(
                key, phase="Pending", conditions=[{**scheduled, "reason": "Unschedulable", "message": problem}]
            )
            return
        self._status(key, phase="Pending", conditions=[scheduled])
        container = pod["spec"]["containers"][0]
        if "missing" in container["image"]:
            waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{container["image"]}"'}
            self._container_status(key, container, {"waiting": waiting})
            return
        self._spawn(self._run(key, pod, container))

    def delete(self, key: Key, grace_seconds: int | None) -> None:
        """Have a pod end, and disappear."""
        pod = self._api.find("pods", key)
        if pod is None:
            return
        grace = (
            pod["spec"].get("terminationGracePeriodSeconds", _GIVEN_GRACE) if grace_seconds is None else grace_seconds
        )
        running = self._containers.get(key)
        if running is None or running.process is None or running.process.returncode is not None:
            self._api.remove("pods", *key)
            return
        if not pod["metadata"].get("deletionTimestamp"):
            self._api.change("pods", key, {"metadata": {"deletionTimestamp": now()}})
            _send(running.process, signal.SIGTERM)
        due = asyncio.get_running_loop().time() + grace
        if running.deadline is None or due < running.deadline:
            running.deadline = due
            self._spawn(self._force(running, grace))

    def oom_kill(self, key: Key) -> None:
        """Kill a container for its use of memory."""
        self._kill(key, "OOMKilled")

    def evict(self, key: Key) -> None:
        """End a pod because the node runs out of something."""
        self._kill(key, "Evicted")

    def read_log(self, key: Key, how: Mapping[str, str]) -> bytes:
        """The log of a pod."""
        running = self._containers.get(key)
        if running is None:
            return b""
        log = running.previous if how.get("previous") == "true" else running.log
        return log.read(how) if log else b""

    async def close(self) -> None:
        """End everything."""
        self._closing = True
        processes = [one.process for one in self._containers.values() if one.process is not None]
        for process in processes:
            _send(process, signal.SIGKILL)
        for process in processes:
            await process.wait()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # their outputs are closed

    def _kill(self, key: Key, reason: str) -> None:
        running = self._containers[key]
        assert running.process is not None
        running.killed_for = reason
        _send(running.process, signal.SIGKILL)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _force(self, running: Container, grace: float) -> None:
        await asyncio.sleep(grace)
        if running.process is not None and running.process.returncode is None:
            _send(running.process, signal.SIGKILL)

    async def _run(self, key: Key, pod: dict[str, Any], container: dict[str, Any]) -> None:
        running = self._containers[key] = Container()
        while True:
            terminated = await self._run_once(key, pod, container, running)
            if self._closing or self._api.find("pods", key) is None:
                return
            ended_by_node = running.killed_for == "Evicted"
            failed = terminated["exitCode"] != 0
            leaving = (self._api.find("pods", key) or {})["metadata"].get("deletionTimestamp")
            if failed and pod["spec"].get("restartPolicy") == "OnFailure" and not (leaving or ended_by_node):
                running.previous, running.log = running.log, Log()
                running.restarts += 1
                running.killed_for = ""
                continue
            break
        if ended_by_node:
            message = "The node was low on resource: ephemeral-storage."
            self._status(key, phase="Failed", reason="Evicted", message=message)
        else:
            self._container_status(key, container, {"terminated": terminated}, restarts=running.restarts)
            self._status(key, phase="Failed" if failed else "Succeeded")
        if leaving:
            await asyncio.sleep(0.05)  # the operator can see how it ended
            self._api.remove("pods", *key)

    async def _run_once(
        self, key: Key, pod: dict[str, Any], container: dict[str, Any], running: Container
    ) -> dict[str, Any]:
        environment = _environment(container)
        mounts = self._mounts(pod, container)
        argv = [_local(_expanded(one, environment), mounts) for one in container.get("command", [])]
        argv = [sys.executable if one == "python" else one for one in argv]
        image = {name: value for name, value in os.environ.items() if _IMAGE.fullmatch(name)}
        local = {name: _local(value, mounts) for name, value in environment.items()}
        try:
            started = popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**image, **local},
                cwd="/",
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return {"exitCode": 128, "reason": "StartError", "message": f"failed to start container: {error}"}
        running.process = Process(started)
        self._container_status(key, container, {"running": {"startedAt": now()}}, restarts=running.restarts)
        self._status(key, phase="Running")
        async with running.process.output() as output:
            # Not until it is closed: what the container leaves behind ends with it, and may hold it.
            reading = asyncio.ensure_future(_copy(output, running.log))
            code = await running.process.wait()
            _send(running.process, signal.SIGKILL)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(reading, 5)
        code = 128 - code if code < 0 else code
        reason = running.killed_for or ("Error" if code else "Completed")
        return {"exitCode": code, "reason": reason, "finishedAt": now(), **_message(container, code, running.log)}

    def _mounts(self, pod: dict[str, Any], container: dict[str, Any]) -> dict[str, str]:
        """Where mounted folders are on this machine."""
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", ())}
        found = {}
        for mount in container.get("volumeMounts", ()):
            path, volume = mount["mountPath"], volumes[mount["name"]]
            if path in _SHARED or "persistentVolumeClaim" in volume:
                continue  # a claim is this machine's file system
            place = self._folder / pod["metadata"]["uid"] / mount["name"]
            place.mkdir(parents=True, exist_ok=True)
            if "configMap" in volume:
                data = self._api.find("configmaps", (pod["metadata"]["namespace"], volume["configMap"]["name"]))
                assert data is not None, "the container would wait for its ConfigMap"
                for name, text in data["data"].items():
                    (place / name).write_text(text)
            found[path] = str(place)
        return found

    def _status(self, key: Key, **status: Any) -> None:
        if self._api.find("pods", key) is not None:
            self._api.change("pods", key, {"status": status})

    def _container_status(
        self, key: Key, container: dict[str, Any], state: dict[str, Any], *, restarts: int = 0
    ) -> None:
        one = {"name": container["name"], "state": state, "restartCount": restarts, "ready": "running" in state}
        self._status(key, containerStatuses=[one])


async def _copy(stream: asyncio.StreamReader, log: Log) -> None:
    while data := await stream.read(1 << 16):
        log.add(data)


def _message(container: dict[str, Any], code: int, log: Log) -> dict[str, str]:
    if code and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
        return {"message": log.tail()}
    return {}


def _unschedulable(pod: dict[str, Any]) -> str:
    if pod["spec"].get("nodeSelector"):
        return "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    return ""


def _environment(container: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for variable in container.get("env", ()):
        found[variable["name"]] = _expanded(variable.get("value", ""), found)
    return found


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """As Kubernetes replaces variables: unknown ones stay, and ``$$`` is ``$``."""
    return _REFERENCE.sub(lambda m: "$" if m[0] == "$$" else environment.get(m[1], m[0]), text)


def _local(text: str, mounts: Mapping[str, str]) -> str:
    for path, place in mounts.items():
        if text == path or text.startswith(f"{path}/"):
            return place + text[len(path) :]
    return text


def _split(data: bytes) -> list[bytes]:
    *whole, rest = data.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def _stamp(moment: float) -> bytes:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%S.%f}000Z ".encode()


def _send(process: Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        if number == signal.SIGKILL:
            os.killpg(process.pid, number)
        elif process.returncode is None:
            os.kill(process.pid, number)
