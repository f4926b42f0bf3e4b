"""The API server: what kmock's has not, and launchers rely on.

kmock 0.8 stores what it is sent, by its path. Added here: uids and times, statuses with reasons, dry runs, validation
against the CRDs, label and field selectors, the deletion of pods with a grace period, owners, logs, faults. Not there,
and not needed: strategic merge patches, server-side apply, resource versions, paging, admission.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp.web
import attrs
import kmock
from crd_schemas import Schema, schemas_of

Key = tuple[str, str]

#: Parsed: kmock 0.8 does not find ``"v1/pods" in objects``.
PLURALS = {
    "pytorchjobs": kmock.resource("kubeflow.org/v1/pytorchjobs"),
    "trainjobs": kmock.resource("trainer.kubeflow.org/v1alpha1/trainjobs"),
    "pods": kmock.resource("v1/pods"),
    "configmaps": kmock.resource("v1/configmaps"),
    "events": kmock.resource("v1/events"),
}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


@attrs.frozen(kw_only=True)
class Fault:
    """An error in place of an answer."""

    #: Part of the path, and the method; empty is every.
    path: str = ""
    method: str = ""
    status: int = 500
    reason: str = "InternalError"
    message: str = "the server is on fire"
    headers: Mapping[str, str] = attrs.field(factory=dict)
    #: What is sent as it is, in place of a status document.
    body: str | None = None
    #: Whether it is carried out all the same: the answer is lost, not the request.
    after: bool = False
    dry_runs: bool = False


class Refused(Exception):
    """An answer that says no."""

    def __init__(self, status: int, reason: str, message: str, **details: str) -> None:
        super().__init__(message)
        self.status = status
        self.document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "reason": reason,
            "message": message,
            "details": details,
            "code": status,
        }


@attrs.define(kw_only=True)
class ApiServer(kmock.KubernetesEmulator):
    """An API server with the operators' kinds installed."""

    crds: Path | None = None
    installed: set[str] = attrs.field(factory=lambda: set(PLURALS))
    namespaces: set[str] = attrs.field(factory=lambda: {"default", "team-a"})
    faults: list[Fault] = attrs.field(factory=list)
    seen: list[kmock.Request] = attrs.field(factory=list)
    #: Why no pod may be made; empty if they may.
    pods_forbidden: str = ""
    changed: asyncio.Event = attrs.field(factory=asyncio.Event)
    #: Set by the kubelet.
    delete_pod: Callable[[Key, int | None], None] = attrs.field(default=lambda key, grace: None)
    read_log: Callable[[Key, Mapping[str, str]], bytes] = attrs.field(default=lambda key, how: b"")
    _schemas: Mapping[str, Schema] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._schemas = schemas_of(self.crds) if self.crds else {}
        for resource in PLURALS.values():
            self.resources[resource] = {"namespaced": True}  # type: ignore[assignment]

    # What the operators use.

    def all(self, plural: str, namespace: str | None = None) -> list[dict[str, Any]]:
        """The objects of a kind."""
        wanted = PLURALS[plural]
        return [
            value.raw
            for (resource, place, _), value in list(self.objects.items())
            if resource == wanted and not value.deleted and namespace in (None, place)
        ]

    def find(self, plural: str, key: Key) -> dict[str, Any] | None:
        """An object."""
        place = (PLURALS[plural], *key)
        return None if place not in self.objects or self.objects[place].deleted else self.objects[place].raw

    def put(self, plural: str, made: dict[str, Any]) -> None:
        """Store an object."""
        self._complete(made)
        key = (PLURALS[plural], made["metadata"]["namespace"], made["metadata"]["name"])
        if key in self.objects:
            self.objects[key].create(made)
        else:
            self.objects[key] = made
        self.changed.set()

    def change(self, plural: str, key: Key, change: dict[str, Any]) -> None:
        """Merge something into an object."""
        self.objects[(PLURALS[plural], *key)].patch(change)
        self.changed.set()

    def remove(self, plural: str, namespace: str, name: str) -> None:
        """Delete an object, and what it owns."""
        gone = self.find(plural, (namespace, name))
        if gone is None:
            return
        self.objects[(PLURALS[plural], namespace, name)].delete()
        for owned in ("pods", "configmaps"):
            for one in self.all(owned, namespace):
                if any(owner["uid"] == gone["metadata"]["uid"] for owner in one["metadata"].get("ownerReferences", ())):
                    key = (namespace, one["metadata"]["name"])
                    self.delete_pod(key, None) if owned == "pods" else self.remove(owned, *key)
        self.changed.set()

    # What is asked over HTTP.

    async def _handle(self, request: kmock.Request) -> aiohttp.web.StreamResponse:
        self.seen.append(request)
        fault = self._fault(request)
        try:
            if fault and not fault.after:
                raise _of(fault)
            answer = await self._answer(request)
            self.changed.set()
            if fault:
                raise _of(fault)
        except Refused as refused:
            if fault and fault.body is not None:
                return aiohttp.web.Response(text=fault.body, status=fault.status, headers=fault.headers)
            return aiohttp.web.json_response(
                refused.document, status=refused.status, headers=fault.headers if fault else None
            )
        return answer

    def _fault(self, request: kmock.Request) -> Fault | None:
        for fault in self.faults:
            if fault.path in request.url.path and fault.method in ("", request.method.name):
                if "dryRun" in request.params and not fault.dry_runs:
                    continue
                return fault
        return None

    async def _answer(self, request: kmock.Request) -> aiohttp.web.StreamResponse:
        if request.resource is None:
            return await super()._handle(request)
        plural = request.resource.plural
        if plural not in self.installed:
            return aiohttp.web.Response(text="404 page not found\n", status=404)
        key = (request.namespace or "default", request.name or "")
        if request.method.name == "POST":
            made = self._checked(plural, key[0], request)
            if made is not None:
                return aiohttp.web.json_response(made, status=201)
        if request.name and self.find(plural, key) is None:
            raise Refused(404, "NotFound", f'{self._title(request)} "{key[1]}" not found', name=key[1], kind=plural)
        if plural == "pods" and request.subresource == "log":
            return aiohttp.web.Response(body=self.read_log(key, request.params))
        if request.method.name == "DELETE":
            return self._deleted(plural, key, request)
        if request.method.name == "GET" and not request.name:
            items = [one for one in self.all(plural, request.namespace) if _is_selected(one, request.params)]
            return aiohttp.web.json_response({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})
        answer = await super()._handle(request)
        if request.method.name == "POST":
            answer.set_status(201)
        return answer

    def _checked(self, plural: str, namespace: str, request: kmock.Request) -> dict[str, Any] | None:
        """See whether an object can be made; what is answered to a dry run."""
        made = request.data
        name = made["metadata"]["name"]
        if namespace not in self.namespaces:
            raise Refused(404, "NotFound", f'namespaces "{namespace}" not found', name=namespace, kind="namespaces")
        problems = [] if _NAME.fullmatch(name) and len(name) <= 253 else [f'metadata.name: Invalid value: "{name}"']
        labels = made["metadata"].get("labels", {})
        problems += [f"metadata.labels: Invalid value: {v!r}" for v in labels.values() if not _LABEL.fullmatch(v)]
        schema = self._schemas.get(plural)
        if schema is not None:
            unknown, invalid = schema.problems(made)
            if unknown and request.params.get("fieldValidation") == "Strict":
                raise Refused(400, "BadRequest", f"strict decoding error: unknown field {', '.join(unknown)}")
            problems += invalid
        if problems:
            raise Refused(422, "Invalid", f'{made["kind"]} "{name}" is invalid: {"; ".join(problems)}')
        if self.find(plural, (namespace, name)) is not None:
            raise Refused(
                409, "AlreadyExists", f'{self._title(request)} "{name}" already exists', name=name, kind=plural
            )
        self._complete(made)
        return made if request.params.get("dryRun") == "All" else None

    def _deleted(self, plural: str, key: Key, request: kmock.Request) -> aiohttp.web.StreamResponse:
        there = self.find(plural, key)
        if plural == "pods":
            body = request.data if isinstance(request.data, dict) else {}
            grace = request.params.get("gracePeriodSeconds", body.get("gracePeriodSeconds"))
            self.delete_pod(key, None if grace is None else int(grace))
        else:
            self.remove(plural, *key)
        return aiohttp.web.json_response(there)

    @staticmethod
    def _title(request: kmock.Request) -> str:
        assert request.resource is not None
        return ".".join(filter(None, [request.resource.plural, request.resource.group]))

    @staticmethod
    def _complete(made: dict[str, Any]) -> None:
        made["metadata"].setdefault("uid", str(uuid.uuid4()))
        made["metadata"].setdefault("creationTimestamp", now())


def now() -> str:
    """The time as Kubernetes writes it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _of(fault: Fault) -> Refused:
    return Refused(fault.status, fault.reason, fault.message)


def _is_selected(one: dict[str, Any], params: Mapping[str, str]) -> bool:
    labels = one["metadata"].get("labels", {})
    told = [term.split("=", 1) for term in params.get("labelSelector", "").split(",") if term]
    if any(labels.get(key) != value for key, value in told):
        return False
    fields = dict(term.split("=", 1) for term in params.get("fieldSelector", "").split(",") if term)
    flat = {"involvedObject.name": one.get("involvedObject", {}).get("name"), "type": one.get("type")}
    return all(flat.get(key) == value for key, value in fields.items())
