"""Base of both launchers: they create and poll an object; all state is kept by the cluster."""

import json
import math
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

import orjson

from hostcore_builtin_plugins.run_result import earlier_result
from hostcore_engines.kubernetes.client import namespace_of
from hostcore_engines.kubernetes.cluster import (
    AlreadyExists,
    Cluster,
    NotFound,
    Object,
    ResourceKind,
    ServerFailed,
    opened,
)
from hostcore_engines.kubernetes.labels import CANCELLED, LAUNCH_ID, Marks, marks_of, own_marks
from hostcore_engines.kubernetes.logs import LogPosition, read_pod_log
from hostcore_engines.kubernetes.mounting import DOCUMENT_KEY
from hostcore_engines.kubernetes.names import label_value, object_name
from hostcore_engines.kubernetes.pods import Pods, pods_of
from hostcore_engines.kubernetes.settings import KubernetesSettings
from hostcore_engines.kubernetes.states import (
    Conditions,
    gone,
    is_cancelled,
    is_over,
    own_result,
    status_of,
)
from hostcore_engines.kubernetes.trouble import exit_code_of
from hostcore_hookspecs import (
    FatalError,
    HostcoreError,
    LaunchContext,
    LaunchHandle,
    LaunchPlan,
    LaunchStatus,
    LogChunk,
)

#: A ConfigMap holds 1 MiB, with all that is around the job.
_DOCUMENT_BYTES: Final = 1_000_000
#: Between two tries to make an object at which the server has failed, in seconds.
_PAUSES: Final = (0.5, 1.0, 2.0)
#: The codes of errors after which it is certain that nothing runs that this launch has started.
NOT_STARTED: Final = "launch.not_started"
NAME_TAKEN: Final = "launch.name_taken"


class KubernetesLauncher(ABC):
    """Hands a run to an operator as an object of a kind that it has brought."""

    #: What the plugin is called.
    plugin: ClassVar[str]
    kind: ClassVar[ResourceKind]
    #: The container of a pod that trains.
    container: ClassVar[str]
    #: torchrun's arguments for the place of a node among the others, in variables that the operator sets.
    rendezvous: ClassVar[Sequence[str]]

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings

    @property
    def sees_run_dir(self) -> bool:
        """True if the pods mount the run directory from a volume."""
        return self._settings.volume is not None

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """See :func:`hostcore_hookspecs.launcher.plan`. The document is what ``kubectl create -f`` takes."""
        name = _name(ctx)
        manifests = [self._manifest(ctx, name, show_values=False)]
        if not self.sees_run_dir:
            manifests.insert(0, self._config_map(ctx, name))
        nodes, gpus = ctx.job.resources.num_nodes, ctx.job.resources.gpus_per_node
        each = f" with {gpus} GPU{'s' if gpus > 1 else ''}" if gpus else ""
        return LaunchPlan(
            summary=f"{self.kind.name} {name} in namespace {namespace_of(ctx, self._settings)}, "
            f"{nodes} node{'s' if nodes > 1 else ''}{each}",
            document="".join(json.dumps(one, indent=2, ensure_ascii=False) + "\n" for one in manifests),
        )

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        """See :func:`hostcore_hookspecs.launcher.launch`.

        The server checks the object before anything is made: a job that it refuses leaves nothing behind. Where it
        fails (500), it is tried again a few times. Then, as when it refuses, it is asked whether an earlier try has
        made the object after all: if not, the error has the code ``launch.not_started``.
        """
        name = _name(ctx) if ctx.name else f"{_name(ctx)[:45].rstrip('-')}-{secrets.token_hex(3)}"
        manifest = self._manifest(ctx, name, show_values=True)
        earlier = earlier_result(ctx.run_dir, ctx.launch_id) if self.sees_run_dir else None
        with opened(self._settings) as cluster:
            made = self._made(cluster, ctx, manifest)
            if not self.sees_run_dir:
                namespace, document = made["metadata"]["namespace"], _document_name(name)
                cluster.patch_config_map(namespace, document, _owned_by(made))
        metadata = made["metadata"]
        ctx.log(f"{self.kind.name} {metadata['namespace']}/{name} created")
        return LaunchHandle(
            launcher=self.plugin,
            id=name,
            details={
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "run_dir": ctx.run_dir if self.sees_run_dir else None,
                "earlier_result": earlier,
            },
        )

    def poll(self, handle: LaunchHandle) -> LaunchStatus:
        """See :func:`hostcore_hookspecs.launcher.poll`."""
        with opened(self._settings) as cluster:
            job = self._find(cluster, handle)
            if job is None:
                return gone(handle, self.kind.name)
            pods = cluster.pods(handle.details["namespace"], self.pod_labels(handle.id))
            result = own_result(handle)
            first = self.first_pod(pods)
            exit_code = None if first is None else exit_code_of(first, self.container)
            status = status_of(job, self.conditions(job), pods, exit_code=exit_code, result=result)
            if status.status == "submitted" and not pods:
                return self._unborn(cluster, handle, status)
            return status

    def cancel(self, handle: LaunchHandle, grace_seconds: float) -> None:
        """See :func:`hostcore_hookspecs.launcher.cancel`.

        The job is suspended and not deleted: its pods end as with deletion, with SIGTERM and then by force, and its
        status can still be read. The annotation marks a job that is not to be continued.
        """
        with opened(self._settings) as cluster:
            job = self._find(cluster, handle)
            if job is None or is_over(self.conditions(job)):
                return
            namespace = handle.details["namespace"]
            try:
                if not is_cancelled(job):
                    change = {"metadata": {"annotations": {CANCELLED: "true"}}, "spec": self.suspended()}
                    cluster.patch(self.kind, namespace, handle.id, change)
                for pod in cluster.pods(namespace, self.pod_labels(handle.id)):
                    _hurry(cluster, pod, grace_seconds)
            except NotFound:
                return  # it is gone, which is what was wanted

    def read_logs(self, handle: LaunchHandle, since: str) -> LogChunk:
        """See :func:`hostcore_hookspecs.launcher.read_logs`: the log of the first node, which reports the run.

        :raises FatalError: If ``since`` is no place in a log.
        """
        LogPosition.of(since)
        with opened(self._settings) as cluster:
            job = self._find(cluster, handle)
            pods = cluster.pods(handle.details["namespace"], self.pod_labels(handle.id)) if job is not None else []
            pod = self.first_pod(pods)
            return LogChunk(text="", next=since) if pod is None else read_pod_log(cluster, pod, self.container, since)

    # What the kinds differ in.

    @abstractmethod
    def manifest(self, pods: Pods, marks: Marks, ctx: LaunchContext) -> Object:
        """``spec`` of the object.

        :param marks: Of its pods.
        """

    @abstractmethod
    def conditions(self, job: Object) -> Conditions:
        """Return the conditions that the operator has set on a job."""

    @abstractmethod
    def suspended(self) -> Object:
        """Return the change of ``spec`` that ends the pods."""

    @abstractmethod
    def pod_labels(self, name: str) -> Mapping[str, str]:
        """Return the labels that select the pods of a job."""

    @abstractmethod
    def first_pod(self, pods: Sequence[Object]) -> Object | None:
        """The pod of the first node, if it is there."""

    # What they have in common.

    def _manifest(self, ctx: LaunchContext, name: str, *, show_values: bool) -> Object:
        environment = ctx.document.get("environment") or {}
        is_built = environment.get("requirements") or environment.get("lock")  # a Python of the image is not
        if is_built and not self._settings.build_environments:
            raise FatalError(
                "a pod would build the environment of this job each time that it starts",
                pointer="/environment",
                hint='install what the trainer needs in an image, and name it: "resources": {"image": …}; or have pods '
                f'build it: "launcher": {{"use": "{self.plugin}", "build_environments": true}}',
            )
        pods = pods_of(
            ctx,
            self._settings,
            document=_document_name(name),
            rendezvous=self.rendezvous,
            show_values=show_values,
        )
        return {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.name,
            "metadata": {"name": name, "namespace": namespace_of(ctx, self._settings), **marks_of(ctx).as_dict()},
            "spec": self.manifest(pods, own_marks(ctx), ctx),
        }

    def _config_map(self, ctx: LaunchContext, name: str) -> Object:
        """The job as the pods read it. It has references to secrets, and no secret."""
        document = orjson.dumps(dict(ctx.document), option=orjson.OPT_INDENT_2).decode()
        if len(document.encode()) > _DOCUMENT_BYTES:
            raise FatalError(
                f"the job has {len(document):,} characters; a ConfigMap holds {_DOCUMENT_BYTES:,} bytes",
                hint='keep what is large in files, or give the launcher a "volume"',
            )
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": _document_name(name),
                "namespace": namespace_of(ctx, self._settings),
                **own_marks(ctx).as_dict(),
            },
            "immutable": True,
            "data": {DOCUMENT_KEY: document},
        }

    def _made(self, cluster: Cluster, ctx: LaunchContext, manifest: Object) -> Object:
        """The object, made now or by an earlier try of this launch.

        :raises FatalError: The server refuses it, or fails each time.
        :raises TransientError: It does not answer, so whether the object is there is unknown.
        """
        for pause in (*_PAUSES, None):
            try:
                return self._make(cluster, ctx, manifest)
            except (FatalError, ServerFailed) as error:
                if error.code == NAME_TAKEN:
                    raise
                if pause is None:  # what the server has begun has this long to appear
                    time.sleep(_PAUSES[-1])
                there = self._found(cluster, ctx, manifest)
                if there is not None:
                    return there
                if isinstance(error, FatalError) or pause is None:
                    raise self._not_started(cluster, ctx, manifest, error) from error
            time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _make(self, cluster: Cluster, ctx: LaunchContext, manifest: Object) -> Object:
        made = self._existing(cluster, ctx, manifest, dry_run=True)
        if not self.sees_run_dir:
            self._hand_on(cluster, ctx, manifest["metadata"]["name"])
        made = made or self._existing(cluster, ctx, manifest, dry_run=False)
        if made is None:
            raise ServerFailed(f"{self.kind.name} {manifest['metadata']['name']} was there, and was deleted meanwhile")
        return made

    def _not_started(self, cluster: Cluster, ctx: LaunchContext, manifest: Object, error: HostcoreError) -> FatalError:
        """That nothing was made; and the document, which would be in the way of the next launch, is removed."""
        if not self.sees_run_dir:
            document = self._config_map(ctx, manifest["metadata"]["name"])["metadata"]
            with suppress(NotFound, HostcoreError):  # it may not be ours to delete
                if _is_of(cluster.get_config_map(document["namespace"], document["name"]), ctx):
                    cluster.delete_config_map(document["namespace"], document["name"])
        return FatalError(error.message, code=NOT_STARTED, hint=error.hint, pointer=error.pointer)

    def _found(self, cluster: Cluster, ctx: LaunchContext, manifest: Object) -> Object | None:
        """The object of this launch, if the cluster has it.

        :raises FatalError: Another has its name.
        """
        metadata = manifest["metadata"]
        try:
            there = cluster.get(self.kind, metadata["namespace"], metadata["name"])
        except NotFound:
            return None
        if not _is_of(there, ctx):
            raise FatalError(
                f"{self.kind.name} {metadata['name']} already exists",
                code=NAME_TAKEN,
                hint=f"choose another run_id, or delete it: kubectl delete {self.kind.plural} "
                f"--namespace {metadata['namespace']} {metadata['name']}",
            )
        return there

    def _existing(self, cluster: Cluster, ctx: LaunchContext, manifest: Object, *, dry_run: bool) -> Object | None:
        """The object, made now or by an earlier try of this launch; None for a new one that was only tried."""
        try:
            made = cluster.create(self.kind, manifest, dry_run=dry_run)
        except AlreadyExists:
            return self._found(cluster, ctx, manifest)
        return None if dry_run else made

    def _hand_on(self, cluster: Cluster, ctx: LaunchContext, name: str) -> None:
        """Have the job's document in the cluster, as a ConfigMap."""
        manifest = self._config_map(ctx, name)
        metadata: Mapping[str, Any] = manifest["metadata"]
        try:
            cluster.create_config_map(manifest)
        except AlreadyExists as error:
            if not _is_of(cluster.get_config_map(metadata["namespace"], metadata["name"]), ctx):
                raise FatalError(
                    f"ConfigMap {metadata['name']} already exists, and is not of this run",
                    hint=f"kubectl delete configmap --namespace {metadata['namespace']} {metadata['name']}",
                ) from error

    def _find(self, cluster: Cluster, handle: LaunchHandle) -> Object | None:
        """The object of a launch; None if it is gone, or another has its name."""
        try:
            job = cluster.get(self.kind, handle.details["namespace"], handle.id)
        except NotFound:
            return None
        return job if job["metadata"].get("uid") == handle.details["uid"] else None

    def _unborn(self, cluster: Cluster, handle: LaunchHandle, status: LaunchStatus) -> LaunchStatus:
        """Add the newest warning to the status of a job without pods: a refusal to make pods is an event only."""
        warnings = cluster.warnings_about(handle.details["namespace"], handle.id)
        if not warnings:
            return status
        reason, message = warnings[-1].get("reason", ""), " ".join(str(warnings[-1].get("message", "")).split())
        return LaunchStatus(status=status.status, message=f"{reason}: {message}")


def _name(ctx: LaunchContext) -> str:
    """Return the object's name; a name built here, not the context's, may get a suffix."""
    return object_name(ctx.name or f"run-{label_value(ctx.job.run_id).lower().replace('_', '-').replace('.', '-')}")


def _document_name(name: str) -> str:
    return f"{name}-job"


def _is_of(there: Object, ctx: LaunchContext) -> bool:
    """Return whether an earlier try of this launch has made an object."""
    found = (there["metadata"].get("labels") or {}).get(LAUNCH_ID)
    return bool(ctx.launch_id) and found == label_value(ctx.launch_id)


def _owned_by(job: Object) -> Object:
    """A change that has an object deleted with the job."""
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"]}
    return {"metadata": {"ownerReferences": [{**owner, **{key: job["metadata"][key] for key in ("name", "uid")}}]}}


def _hurry(cluster: Cluster, pod: Object, grace_seconds: float) -> None:
    """Have a pod end sooner than its own time allows, if that is asked for."""
    own = pod["spec"].get("terminationGracePeriodSeconds")
    # 0 would remove the pod from the cluster's books while its processes run.
    asked = max(1, math.ceil(grace_seconds))
    if own is None or asked < own:
        try:
            cluster.delete_pod(pod["metadata"]["namespace"], pod["metadata"]["name"], asked)
        except NotFound:
            return
