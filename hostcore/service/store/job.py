"""A job as the database has it."""

from collections.abc import Mapping
from typing import Any, Literal

import attrs
import orjson

from hostcore_hookspecs.launcher import LaunchHandle

Phase = Literal["queued", "launching", "launched", "ended"]


@attrs.frozen(kw_only=True)
class StoredJob:
    """One row of the table ``jobs``; see there for what the fields mean."""

    run_id: str
    name: str
    job: Mapping[str, Any]
    trainer: str
    launcher: str
    owner: str | None = None
    principal: str
    route: str
    idempotency_key: str | None = None
    request_sha256: str | None = None
    phase: Phase = "queued"
    status: str = "submitted"
    detail: str = ""
    launch_id: str
    launches: int = 1
    handle: LaunchHandle | None = None
    failures: int = 0
    cancel_reason: str | None = None
    cancel_ms: int | None = None
    attempt: int = 0
    step: int = 0
    max_steps: int = 0
    exit_code: int | None = None
    submitted_ms: int
    started_ms: int | None = None
    ended_ms: int | None = None
    seen_ms: int | None = None
    updated_ms: int
    attendant: str | None = None
    attended_until_ms: int = 0
    due_ms: int = 0


_JSON = ("job", "handle")


def to_row(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a job as columns. Text of launchers may have in it what a database does not take as text."""
    row: dict[str, Any] = {key: _storable(value) if isinstance(value, str) else value for key, value in changes.items()}
    for key in _JSON:
        if row.get(key) is not None:
            value = row[key]
            row[key] = orjson.dumps(attrs.asdict(value) if attrs.has(type(value)) else value).decode()
    return row


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def from_row(row: Mapping[str, Any]) -> StoredJob:
    """A row as a job."""
    fields = dict(row)
    for key in _JSON:
        if fields[key] is not None:
            fields[key] = orjson.loads(fields[key])
    if fields["handle"] is not None:
        fields["handle"] = LaunchHandle(**fields["handle"])
    return StoredJob(**fields)
