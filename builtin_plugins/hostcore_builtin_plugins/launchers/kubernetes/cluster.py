"""The API server: a few requests of the official client, answered with plain JSON, its errors in hostcore's terms."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any, Final

import attrs

from hostcore_builtin_plugins.launchers.kubernetes.client import connect
from hostcore_builtin_plugins.launchers.kubernetes.settings import KubernetesSettings
from hostcore_hookspecs import FatalError, TransientError

Object = dict[str, Any]

_MANAGER: Final = "hostcore"
_BUSY: Final = frozenset({408, 425, 429})
_MERGE: Final = "application/merge-patch+json"
_CONNECT_SECONDS: Final = 10.0


class AlreadyExists(Exception):
    """There is an object of that name."""


class NotFound(Exception):
    """There is no such object, or nothing of that kind."""


@attrs.frozen(kw_only=True)
class Kind:
    """A kind of object that an operator has brought."""

    name: str
    group: str
    version: str
    plural: str
    #: What to install for it.
    operator: str

    @property
    def api_version(self) -> str:
        """As manifests have it."""
        return f"{self.group}/{self.version}"


class Cluster:
    """Asks the API server of a cluster. Made anew for each call of a launcher: nothing is kept.

    :raises FatalError: See :func:`.client.connect`.
    """

    def __init__(self, settings: KubernetesSettings) -> None:
        self._api = connect(settings)
        self._how: dict[str, Any] = {"_request_timeout": (_CONNECT_SECONDS, settings.timeout_seconds)}
        self._raw: dict[str, Any] = {**self._how, "_preload_content": False}

    def create(self, kind: Kind, manifest: Object, *, dry_run: bool = False) -> Object:
        """Make an object; the server refuses what it does not know instead of leaving it out.

        :param dry_run: Have it checked by all who are asked before something is made, and not made.
        :raises AlreadyExists: One of that name is there.
        :raises FatalError: It is refused.
        :raises TransientError: The server does not answer, or is busy.
        """
        metadata = manifest["metadata"]
        with _errors(f"{kind.name} {metadata['name']}", kind):
            made: Object = self._custom().create_namespaced_custom_object(
                kind.group,
                kind.version,
                metadata["namespace"],
                kind.plural,
                manifest,
                field_manager=_MANAGER,
                field_validation="Strict",
                **({"dry_run": "All"} if dry_run else {}),
                **self._how,
            )
        return made

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """An object.

        :raises NotFound: It is gone.
        """
        with _errors(f"{kind.name} {name}", kind):
            got: Object = self._custom().get_namespaced_custom_object(
                kind.group, kind.version, namespace, kind.plural, name, **self._how
            )
        return got

    def patch(self, kind: Kind, namespace: str, name: str, change: Object) -> None:
        """Change an object: a JSON merge patch (RFC 7396).

        :raises NotFound: It is gone.
        """
        with _errors(f"{kind.name} {name}", kind):
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
                **self._how,
            )

    def create_config_map(self, manifest: Object) -> Object:
        """Make a ConfigMap.

        :raises AlreadyExists: One of that name is there.
        """
        metadata = manifest["metadata"]
        with _errors(f"ConfigMap {metadata['name']}"):
            return _json(
                self._core().create_namespaced_config_map(
                    metadata["namespace"], manifest, field_manager=_MANAGER, field_validation="Strict", **self._raw
                )
            )

    def get_config_map(self, namespace: str, name: str) -> Object:
        """A ConfigMap.

        :raises NotFound: It is gone.
        """
        with _errors(f"ConfigMap {name}"):
            return _json(self._core().read_namespaced_config_map(name, namespace, **self._raw))

    def patch_config_map(self, namespace: str, name: str, change: Object) -> None:
        """Change a ConfigMap: a JSON merge patch.

        :raises NotFound: It is gone.
        """
        with _errors(f"ConfigMap {name}"):
            _json(
                self._core().patch_namespaced_config_map(
                    name, namespace, change, field_manager=_MANAGER, _content_type=_MERGE, **self._raw
                )
            )

    def pods(self, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        """The pods with these labels."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        with _errors("pods"):
            listed = _json(self._core().list_namespaced_pod(namespace, label_selector=selector, **self._raw))
        return list(listed.get("items") or ())

    def delete_pod(self, namespace: str, name: str, grace_seconds: int) -> None:
        """Have a pod end within that time; one that ends already may be given less time, not more.

        :raises NotFound: It is gone.
        """
        with _errors(f"pod {name}"):
            _json(
                self._core().delete_namespaced_pod(name, namespace, grace_period_seconds=grace_seconds, **self._raw)
            )

    def warnings_about(self, namespace: str, name: str) -> list[Object]:
        """The events that warn of an object, oldest first; none where they may not be read."""
        selector = f"involvedObject.name={name},type=Warning"
        try:
            with _errors("events"):
                listed = _json(self._core().list_namespaced_event(namespace, field_selector=selector, **self._raw))
        except FatalError:  # they explain, and are not worth an error of their own
            return []
        events = list(listed.get("items") or ())
        return sorted(events, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")

    @contextmanager
    def log(
        self, namespace: str, pod: str, container: str, *, since_seconds: int | None, previous: bool
    ) -> Iterator[Iterator[bytes]]:
        """What a container has printed, each line after the time it was printed at.

        :param since_seconds: How far to go back; None: to the beginning.
        :param previous: Of the start before, of a container that was started again.
        :raises NotFound: The pod is gone, or its container has not begun.
        """
        how: dict[str, Any] = {"since_seconds": since_seconds} if since_seconds is not None else {}
        with _errors(f"log of pod {pod}", not_begun=True):
            response = _checked(
                self._core().read_namespaced_pod_log(
                    pod, namespace, container=container, timestamps=True, previous=previous, **how, **self._raw
                )
            )
            try:
                yield response.stream(1 << 16)
            finally:
                response.close()

    def now(self) -> float:
        """The server's time in seconds since 1970: logs are asked for by their age, and clocks differ."""
        with _errors("version"):
            from kubernetes.client import VersionApi

            response = _checked(VersionApi(self._api).get_code(**self._raw))
            date = response.headers.get("Date")
            response.close()
        return parsedate_to_datetime(date).timestamp() if date else 0.0

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


def _checked(response: Any) -> Any:
    """A response that was not read yet, if it is none of an error: not all versions of the client look themselves."""
    if response.status >= 400:
        from kubernetes.client.exceptions import ApiException

        error = ApiException(status=response.status, reason=response.reason)
        error.body, error.headers = response.data, response.headers
        raise error
    return response


def _json(response: Any) -> Object:
    # Not the client's models: they refuse what a newer server has put in.
    plain: Object = json.loads(_checked(response).data)
    return plain


@contextmanager
def _errors(what: str, kind: Kind | None = None, *, not_begun: bool = False) -> Iterator[None]:
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ApiException as error:
        raise _translated(error, what, kind, not_begun=not_begun) from error
    except HTTPError as error:
        raise TransientError(f"the API server does not answer: {error}") from error


def _translated(error: Any, what: str, kind: Kind | None, *, not_begun: bool) -> Exception:
    status = int(error.status or 0)
    reason, message = _told(error)
    if status == 409 and reason != "Conflict":
        return AlreadyExists(message)
    if status == 404 and (kind is None or _is_missing_object(error, kind)):
        return NotFound(message)
    if status == 400 and not_begun:
        return NotFound(message)
    if status in _BUSY or status >= 500 or status == 409:
        return TransientError(f"{what}: {message}", retry_after_seconds=_retry_after(error))
    hint, pointer = _advice(status, message, kind)
    return FatalError(f"{what}: {message}", hint=hint, pointer=pointer)


def _advice(status: int, message: str, kind: Kind | None) -> tuple[str | None, str | None]:
    if status == 401:
        return "log in to the cluster again; `kubectl auth whoami` shows whom it takes you for", None
    if status == 403:
        return "ask an administrator for the rights that the documentation lists, or choose another namespace", None
    if status == 404 and kind is not None:
        if message.startswith("namespaces "):
            return "create the namespace, or name another", "/resources/namespace"
        return f"install {kind.operator}, which brings {kind.plural}.{kind.group}", "/launcher"
    return None, None


def _told(error: Any) -> tuple[str, str]:
    """Reason and message of the server's ``Status``."""
    body = _body(error)
    message = body.get("message") or f"{error.status} {error.reason}"
    return str(body.get("reason") or ""), " ".join(str(message).split())


def _body(error: Any) -> Object:
    try:
        body = json.loads(error.body or b"{}")
    except (TypeError, ValueError):  # a proxy's page
        return {}
    return body if isinstance(body, dict) else {}


def _is_missing_object(error: Any, kind: Kind) -> bool:
    """Whether an object is missing, and not its kind or its namespace."""
    details = _body(error).get("details") or {}
    return bool(details.get("name")) and details.get("kind") == kind.plural


def _retry_after(error: Any) -> float | None:
    text: str | None = (error.headers or {}).get("Retry-After")
    return float(text) if text and text.isdecimal() else None


