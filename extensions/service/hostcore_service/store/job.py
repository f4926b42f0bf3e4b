"""A job as the database has it."""

from collections.abc import Mapping
from typing import Any, Literal

import attrs
import orjson

from hostcore.runs.used import Used, UsedPlugin
from hostcore_hookspecs.launcher import LaunchHandle

Phase = Literal["queued", "launching", "launched", "ended"]


@attrs.frozen(kw_only=True)
class JobRow:
    """One row of the table ``jobs`` without the job itself, which may be large; see there for what the fields mean."""

    run_id: str
    name: str
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
    holder: str | None = None
    held_until_ms: int = 0
    due_ms: int = 0
    used: tuple[Used, ...] | None = None


@attrs.frozen(kw_only=True)
class ListedJob(JobRow):
    """Columns of a job in lists."""

    labels: Mapping[str, str]


@attrs.frozen(kw_only=True)
class StoredJob(JobRow):
    """One whole row."""

    job: Mapping[str, Any]

    @property
    def labels(self) -> Mapping[str, str]:
        """The job's labels."""
        labels: Mapping[str, str] = self.job.get("labels") or {}
        return labels

    def ended(self, status: str, detail: str, *, ended_ms: int) -> "StoredJob":
        """The job when it has ended."""
        return attrs.evolve(self, phase="ended", status=status, detail=detail, ended_ms=ended_ms)

    def queued_again(self, document: Mapping[str, Any], launch_id: str, *, now: int) -> "StoredJob":
        """The job when it is to be launched once more.

        :param document: The job as it is allowed now.
        :param now: Milliseconds since 1970.
        """
        return attrs.evolve(
            self,
            job=document,
            phase="queued",
            status="submitted",
            detail="",
            launch_id=launch_id,
            launches=self.launches + 1,
            handle=None,
            failures=0,
            cancel_reason=None,
            cancel_ms=None,
            exit_code=None,
            started_ms=None,
            ended_ms=None,
            updated_ms=now,
            due_ms=now,
        )


def changed(before: StoredJob, after: StoredJob) -> dict[str, Any]:
    """Return the changed fields of a job, as columns."""
    names = [field.name for field in attrs.fields(StoredJob)]
    return to_row({name: getattr(after, name) for name in names if getattr(after, name) != getattr(before, name)})


_JSON = ("job", "handle", "used")
#: Fields whose columns have other names; databases have them.
_FIELDS = {"attendant": "holder", "attended_until_ms": "held_until_ms"}


def to_row(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a job as columns. Text of launchers may have in it what a database does not take as text."""
    row: dict[str, Any] = {key: storable(value) if isinstance(value, str) else value for key, value in changes.items()}
    for key in _JSON:
        if row.get(key) is not None:
            value = row[key]
            row[key] = orjson.dumps(value, default=attrs.asdict).decode()
    return row


def storable(text: str) -> str:
    """A text as databases take it."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def from_row(row: Mapping[str, Any]) -> StoredJob:
    """A row as a job."""
    return StoredJob(**_plain(row))


def listed(row: Mapping[str, Any], labels: Mapping[str, str]) -> ListedJob:
    """A row without its job, and the job's labels."""
    return ListedJob(**_plain(row), labels=labels)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    fields = {
        _FIELDS.get(name, name): orjson.loads(value) if name in _JSON and value is not None else value
        for name, value in row.items()
    }
    if fields["handle"] is not None:
        fields["handle"] = LaunchHandle(**fields["handle"])
    if fields["used"] is not None:
        fields["used"] = tuple(
            Used(**{**one, "plugins": tuple(UsedPlugin(**plugin) for plugin in one["plugins"])})
            for one in fields["used"]
        )
    return fields
