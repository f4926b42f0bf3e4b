"""An emulated Kubernetes cluster: an API server (kmock), Kubeflow's operators, and a kubelet that runs pods here.

::

    with cluster(tmp_path) as kubernetes:
        ...  # KUBECONFIG=kubernetes.kubeconfig

A stand-in, since a cluster cannot be had on a developer's machine. What launchers rely on is as in a real one: names,
conflicts, dry runs, refused unknown fields (with the published CRDs), selectors, owners, grace periods, conditions,
logs with times. Images are not: every pod runs with what is installed here, on this file system.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import kmock

from .api import ApiServer, Fault
from .kubelet import Kubelet
from .operators import Operator

__all__ = ["EmulatedCluster", "Fault", "cluster"]

_T = TypeVar("_T")

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: emulated
clusters: [{{name: emulated, cluster: {{server: "{url}"}}}}]
users: [{{name: me, user: {{token: "token"}}}}]
contexts: [{{name: emulated, context: {{cluster: emulated, user: me}}}}]
"""


class EmulatedCluster:
    """A handle on the cluster, to be used from any thread."""

    def __init__(self, kubeconfig: Path, api: ApiServer, kubelet: Kubelet, loop: asyncio.AbstractEventLoop) -> None:
        self.kubeconfig = kubeconfig
        self.api = api
        self._kubelet = kubelet
        self._loop = loop

    def _run(self, call: Callable[[], _T]) -> _T:
        async def there() -> _T:
            return call()

        return asyncio.run_coroutine_threadsafe(there(), self._loop).result(300)

    def objects(self, plural: str, namespace: str = "default") -> list[dict[str, Any]]:
        """What there is of a kind: ``pytorchjobs``, ``pods``, ``configmaps``."""
        return self._run(lambda: self.api.all(plural, namespace))

    def fail(self, fault: Fault) -> None:
        """Have the API server answer requests with an error."""
        self._run(lambda: self.api.faults.append(fault))

    def heal(self) -> None:
        """Have it answer as it should again."""
        self._run(self.api.faults.clear)

    def requests(self, method: str = "", path: str = "") -> list[kmock.Request]:
        """What it was asked."""

        def asked() -> list[kmock.Request]:
            return [one for one in self.api.seen if (not method or one.method.name == method) and path in one.url.path]

        return self._run(asked)

    def oom_kill(self, pod: str, namespace: str = "default") -> None:
        """Kill a pod's container as the kernel does when it takes too much memory."""
        self._run(lambda: self._kubelet.oom_kill((namespace, pod)))

    def evict(self, pod: str, namespace: str = "default") -> None:
        """Have the node end a pod because it runs out of something."""
        self._run(lambda: self._kubelet.evict((namespace, pod)))

    def change(self, plural: str, name: str, change: dict[str, Any], namespace: str = "default") -> None:
        """Change an object, as an administrator does."""
        self._run(lambda: self.api.change(plural, (namespace, name), change))

    def forbid_pods(self, message: str) -> None:
        """Have the admission refuse every pod; operators tell of it in events alone."""
        self.api.pods_forbidden = message

    def wait(self, condition: Callable[[], Any], seconds: float = 300.0) -> None:
        """Wait for something to come true."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"waited {seconds} s in vain"
            time.sleep(0.02)

    def forget(self, plural: str, name: str, namespace: str = "default") -> None:
        """Delete an object, as a user does, or the time to live after its end."""
        self._run(lambda: self.api.remove(plural, namespace, name))


@contextlib.contextmanager
def cluster(folder: Path, *, checked: bool = False) -> Iterator[EmulatedCluster]:
    """Start a cluster; its pods end with it.

    :param folder: For its kubeconfig, and what pods mount.
    :param checked: Whether the server refuses what the published CRDs do not have, if ``HOSTCORE_TEST_CRDS`` names
        their folder. Otherwise it takes any field.
    """
    crds = os.environ.get("HOSTCORE_TEST_CRDS") if checked else None
    folder.mkdir(parents=True, exist_ok=True)
    started: list[EmulatedCluster | BaseException] = []
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        api = ApiServer(crds=Path(crds) if crds else None)
        kubelet = Kubelet(api, folder / "pods")
        operator = Operator(api, kubelet)
        async with api, kmock.RawHandler.Server(api) as server:
            kubeconfig = folder / "kubeconfig.yaml"
            kubeconfig.write_text(KUBECONFIG.format(url=str(server.url).rstrip("/")))
            reconciling = asyncio.ensure_future(operator.run())
            started.append(EmulatedCluster(kubeconfig, api, kubelet, loop))
            ready.set()
            await stop.wait()
            reconciling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reconciling
            await kubelet.close()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except BaseException as error:
            started.append(error)
            ready.set()
            raise
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    thread = threading.Thread(target=run, name="emulated cluster", daemon=True)
    thread.start()
    ready.wait(300)
    try:
        if isinstance(started[0], BaseException):
            raise started[0]
        yield started[0]
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
        thread.join(30)
