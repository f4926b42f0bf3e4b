"""The API server: a few requests of the official client, answered with plain JSON, its errors in hostcore's terms."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any, Final

from hostcore_engines.kubernetes.answers import (
    AlreadyExists,
    NotFound,
    Object,
    ResourceKind,
    ServerFailed,
    checked,
    errors,
)
from hostcore_engines.kubernetes.client import connect
from hostcore_engines.kubernetes.settings import KubernetesSettings
from hostcore_hookspecs import FatalError

_MANAGER: Final = "hostcore"
_MERGE: Final = "application/merge-patch+json"
_CONNECT_SECONDS: Final = 10.0


class Cluster:
    """Asks the API server of a cluster. Made anew for each call of a launcher: nothing is kept.

    :raises FatalError: See :func:`.client.connect`.
    """

    def __init__(self, settings: KubernetesSettings) -> None:
        self._api = connect(settings)
        #: Time of the newest request for pods, by the server's clock, in seconds since 1970; None if it sent none.
        #: Logs are requested by age, and clocks differ.
        self.server_time: float | None = None
        # Not the client's models: they refuse fields of a newer server, and give less detail in errors.
        self._raw: dict[str, Any] = {
            "_request_timeout": (_CONNECT_SECONDS, settings.timeout_seconds),
            "_preload_content": False,
        }

    def create(self, kind: ResourceKind, manifest: Object, *, dry_run: bool = False) -> Object:
        """Make an object; the server refuses what it does not know instead of leaving it out.

        :param dry_run: Have it checked by all who are asked before something is made, and not made.
        :raises AlreadyExists: One of that name is there.
        :raises FatalError: It is refused.
        :raises TransientError: The server does not answer, or is busy.
        """
        metadata = manifest["metadata"]
        with errors(f"{kind.name} {metadata['name']}", kind):
            return _json(
                self._custom().create_namespaced_custom_object(
                    kind.group,
                    kind.version,
                    metadata["namespace"],
                    kind.plural,
                    manifest,
                    field_manager=_MANAGER,
                    field_validation="Strict",
                    **({"dry_run": "All"} if dry_run else {}),
                    **self._raw,
                )
            )

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Object:
        """An object.

        :raises NotFound: It is gone.
        """
        with errors(f"{kind.name} {name}", kind):
            return _json(
                self._custom().get_namespaced_custom_object(
                    kind.group, kind.version, namespace, kind.plural, name, **self._raw
                )
            )

    def patch(self, kind: ResourceKind, namespace: str, name: str, change: Object) -> None:
        """Change an object: a JSON merge patch (RFC 7396).

        :raises NotFound: It is gone.
        """
        with errors(f"{kind.name} {name}", kind):
            _json(
                self._custom().patch_namespaced_custom_object(
                    kind.group,
                    kind.version,
                    namespace,
                    kind.plural,
                    name,
                    change,
                    field_manager=_MANAGER,
                    field_validation="Strict",
                    _content_type=_MERGE,
                    **self._raw,
                )
            )

    def create_config_map(self, manifest: Object) -> Object:
        """Make a ConfigMap.

        :raises AlreadyExists: One of that name is there.
        """
        metadata = manifest["metadata"]
        with errors(f"ConfigMap {metadata['name']}"):
            return _json(
                self._core().create_namespaced_config_map(
                    metadata["namespace"], manifest, field_manager=_MANAGER, field_validation="Strict", **self._raw
                )
            )

    def get_config_map(self, namespace: str, name: str) -> Object:
        """A ConfigMap.

        :raises NotFound: It is gone.
        """
        with errors(f"ConfigMap {name}"):
            return _json(self._core().read_namespaced_config_map(name, namespace, **self._raw))

    def patch_config_map(self, namespace: str, name: str, change: Object) -> None:
        """Change a ConfigMap: a JSON merge patch.

        :raises NotFound: It is gone.
        """
        with errors(f"ConfigMap {name}"):
            _json(
                self._core().patch_namespaced_config_map(
                    name, namespace, change, field_manager=_MANAGER, _content_type=_MERGE, **self._raw
                )
            )

    def delete_config_map(self, namespace: str, name: str) -> None:
        """Delete a ConfigMap.

        :raises NotFound: It is gone.
        """
        with errors(f"ConfigMap {name}"):
            _json(self._core().delete_namespaced_config_map(name, namespace, **self._raw))

    def pods(self, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        """The pods with these labels."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        with errors("pods"):
            response = checked(self._core().list_namespaced_pod(namespace, label_selector=selector, **self._raw))
            date = response.headers.get("Date")
            self.server_time = parsedate_to_datetime(date).timestamp() if date else None
            return list(_json(response).get("items") or ())

    def delete_pod(self, namespace: str, name: str, grace_seconds: int) -> None:
        """Have a pod end within that time; one that ends already may be given less time, not more.

        :raises NotFound: It is gone.
        """
        with errors(f"pod {name}"):
            _json(self._core().delete_namespaced_pod(name, namespace, grace_period_seconds=grace_seconds, **self._raw))

    def warnings_about(self, namespace: str, name: str) -> list[Object]:
        """The events that warn of an object, oldest first; none where they may not be read."""
        selector = f"involvedObject.name={name},type=Warning"
        try:
            with errors("events"):
                listed = _json(self._core().list_namespaced_event(namespace, field_selector=selector, **self._raw))
        except FatalError:  # they explain, and are not worth an error of their own
            return []
        events = list(listed.get("items") or ())
        return sorted(events, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")

    @contextmanager
    def log(
        self, namespace: str, pod: str, container: str, *, since_seconds: int | None, previous: bool
    ) -> Iterator[Iterator[bytes]]:
        """Stream the log of a container; each line begins with its time.

        :param since_seconds: Age of the first line, in seconds; None: from the beginning.
        """
        how: dict[str, Any] = {"since_seconds": since_seconds} if since_seconds is not None else {}
        with errors(f"log of pod {pod}", not_begun=True):
            response = checked(
                self._core().read_namespaced_pod_log(
                    pod, namespace, container=container, timestamps=True, previous=previous, **how, **self._raw
                )
            )
            try:
                yield response.stream(1 << 16)
            finally:
                response.close()

    def close(self) -> None:
        """Close the connections."""
        self._api.rest_client.pool_manager.clear()

    def _core(self) -> Any:
        from kubernetes.client import CoreV1Api

        return CoreV1Api(self._api)

    def _custom(self) -> Any:
        from kubernetes.client import CustomObjectsApi

        return CustomObjectsApi(self._api)


@contextmanager
def opened(settings: KubernetesSettings) -> Iterator[Cluster]:
    """A cluster to ask, and closed afterwards."""
    cluster = Cluster(settings)
    try:
        yield cluster
    finally:
        cluster.close()


def _json(response: Any) -> Object:
    plain: Object = json.loads(checked(response).data)
    return plain


__all__ = ["AlreadyExists", "Cluster", "NotFound", "Object", "ResourceKind", "ServerFailed", "opened"]
