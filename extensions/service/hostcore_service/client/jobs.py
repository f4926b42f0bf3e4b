"""The jobs of a service: find, list, cancel, resume them."""

import difflib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeVar
from urllib.parse import quote

import attrs

from hostcore.runs.find import AmbiguousRun, ambiguous
from hostcore.runs.result import RunResult, RunWarning
from hostcore.runs.statuses import ALIVE
from hostcore.runs.summary import RunSummary, UnknownRun, unrecorded
from hostcore.runs.used import UseQuery
from hostcore_hookspecs.errors import HostcoreError, RunError
from hostcore_service.client.answers import ForeignAnswer
from hostcore_service.client.client import Client, shown
from hostcore_service.client.timeouts import asked_until_answered

T = TypeVar("T")

_PAGE: Final = 200
#: The reason of a lost job of which the service knows no more.
UNKNOWN_END: Final = "what has become of it is unknown"


@attrs.frozen(kw_only=True)
class RemoteJob:
    """A job as its service knows it."""

    run_id: str
    status: str
    #: What has launched it; empty in what an earlier service answers.
    launcher: str = ""
    #: What that calls it; None before it was launched.
    engine_id: str | None = None
    #: Why it is as it is; may be empty.
    detail: str = ""
    trainer: str
    step: int = 0
    max_steps: int = 0
    attempt: int = 0
    launches: int = 1
    exit_code: int | None = None
    #: Milliseconds since 1970, as the others.
    submitted_ms: int
    started_ms: int | None = None
    ended_ms: int | None = None
    seen_ms: int | None = None
    #: In lists that were asked for it: what attempts used of it.
    used: Sequence[Mapping[str, Any]] | None = None
    #: The job as resolved; empty in lists.
    job: Mapping[str, Any] = attrs.field(factory=dict)
    #: What ``hostcore status --json`` prints there; None in lists, and while the run has no directory.
    run: Mapping[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        """Return whether it has ended, unless it is resumed."""
        return self.status not in ALIVE

    @property
    def summary(self) -> RunSummary:
        """Return the line of ``hostcore list``."""
        ended = self.ended_ms if self.is_over and self.status != "lost" else None
        return RunSummary(
            run_id=self.run_id,
            status=self.status,
            trainer=self.trainer,
            step=self.step,
            max_steps=self.max_steps,
            attempt=self.attempt,
            submitted_ms=self.submitted_ms,
            ended_ms=ended,
            started_ms=self.started_ms,
            seen_ms=ended or self.seen_ms,
        )


@attrs.frozen(kw_only=True)
class _Page:
    jobs: Sequence[RemoteJob]
    unknown: int


@attrs.frozen(kw_only=True)
class JobsOfUse:
    """Jobs that used something."""

    newest_first: Iterator[RemoteJob]
    #: How many others may be meant as well.
    unknown: int


class RemoteJobs:
    """The jobs of one service."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def submit(self, document: Mapping[str, Any]) -> RemoteJob:
        """Submit a job. However often it has to be sent, it makes one.

        :raises HostcoreError: Everything that the service has against it.
        """
        key = secrets.token_hex(16)
        return value_of(RemoteJob, self.client.post("/v1/jobs", document, headers={"Idempotency-Key": key}))

    def newest_first(self, *, statuses: Sequence[str] = ()) -> Iterator[RemoteJob]:
        """Iterate over all jobs; pages are requested as they are needed."""
        for page in self._pages(status=list(statuses)):
            yield from page.jobs

    def using(self, use: UseQuery, *, statuses: Sequence[str] = ()) -> "JobsOfUse":
        """Find the jobs with an attempt that used all of this, and the number of those that may match."""
        pages = self._pages(
            status=list(statuses),
            plugin=[one.text for one in use.plugins],
            distribution=[one.text for one in use.distributions],
            data=use.data or None,
        )
        first = next(pages)
        rest = (job for page in pages for job in page.jobs)
        return JobsOfUse(newest_first=chain(first.jobs, rest), unknown=first.unknown)

    def _pages(self, **wanted: Any) -> "Iterator[_Page]":
        cursor = None
        while True:
            page = self.client.get("/v1/jobs", **wanted, limit=_PAGE, cursor=cursor)
            jobs = [value_of(RemoteJob, one) for one in _list(page, "jobs")]
            yield _Page(jobs=jobs, unknown=page.get("unknown") or 0)
            cursor = page.get("next")
            if not cursor:
                return

    def get(self, run_id: str, *, once: bool = False) -> RemoteJob:
        """Return a job.

        :param once: Whether the caller itself tries again.
        :raises UnknownRun: When there is none of that run_id.
        """
        try:
            return value_of(RemoteJob, self.client.get(path_of(run_id), once=once))
        except HostcoreError as error:
            if error.code == "run.unknown":
                raise UnknownRun(f"there is no run {run_id!r} at {self.client.url}", hint=self._list_hint) from error
            raise

    def find(self, name: str) -> RemoteJob:
        """Find a job by its run_id, which wins, or by the beginning of exactly one.

        :raises UnknownRun: When there is none; the hint has the nearest name.
        :raises AmbiguousRun: When several begin so.
        """
        if "/" in name or name in ("", ".", ".."):
            raise UnknownRun(f"{name!r} is no run id", hint=f"a service knows no folders; {self._list_hint}")
        try:
            return self.get(name)
        except UnknownRun as error:
            run_ids = [job.run_id for job in self.newest_first()]
            matches = sorted(run_id for run_id in run_ids if run_id.startswith(name))
            if len(matches) > 1:
                raise AmbiguousRun(ambiguous(name, matches), hint="give more of the run id") from None
            if not matches:
                near = difflib.get_close_matches(name, run_ids, n=1)
                error.hint = f"did you mean {near[0]!r}? {self._list_hint}" if near else self._list_hint
                raise
            return self.get(matches[0])

    @property
    def _list_hint(self) -> str:
        return f"`{shown(self.client.url, 'list')}` shows the runs there are"

    def get_until_answered(self, run_id: str) -> RemoteJob:
        """Return a followed job, however long its service is away; see :func:`asked_until_answered`."""
        return asked_until_answered(self.client, lambda: self.get(run_id, once=True))

    def cancel(self, run_id: str, reason: str, *, once: bool = False) -> RemoteJob:
        """Request the cancellation of a job.

        :param once: See :meth:`get`.
        """
        return value_of(RemoteJob, self.client.post(f"{path_of(run_id)}:cancel", {"reason": reason}, once=once))

    def resume(self, job: RemoteJob) -> RemoteJob:
        """Have a job that has ended launched once more, however often that has to be sent.

        :param job: As it was seen. If it was launched since, it is left as it is.
        """
        return value_of(RemoteJob, self.client.post(f"{path_of(job.run_id)}:resume", {"launches": job.launches}))

    def result(self, job: RemoteJob) -> RunResult:
        """Return the result of a job that is over.

        Out of its ``result.json``; one that never got so far, or whose machine is gone, has what the service knows.
        """
        try:
            found = self.client.get(f"{path_of(job.run_id)}/artifacts/result.json")
        except HostcoreError as missing:
            if missing.code not in _NOT_THERE:
                raise
            return _unrecorded(job)
        error = value_of(RunError, found["error"]) if found.get("error") else None
        warnings = [value_of(RunWarning, one) for one in found.get("warnings") or ()]
        result = value_of(RunResult, {**found, "error": error, "warnings": warnings})
        of_this_launch = result.status == job.status and result.attempt == job.attempt
        return result if of_this_launch else _unrecorded(job)


#: Codes of a file that is missing, or whose store refuses it.
_NOT_THERE: Final = frozenset({"run.unknown", "file.unknown", "request.not_found", "store.denied", "store.unreachable"})


def path_of(run_id: str) -> str:
    """Return the path of a job's routes."""
    return f"/v1/jobs/{quote(run_id, safe='')}"


def _unrecorded(job: RemoteJob) -> RunResult:
    told = job.detail or (UNKNOWN_END if job.status == "lost" else "")
    return unrecorded(job.summary, told=told, ended_ms=job.ended_ms or job.submitted_ms)


def _list(found: Any, key: str) -> list[Any]:
    if not isinstance(found, Mapping) or not isinstance(found.get(key), list):
        raise ForeignAnswer(f"no hostcore service: its answer has no {key!r}")
    return list(found[key])


def value_of(cls: type[T], found: Any) -> T:
    """Structure a value of an answer. Unknown keys are ignored: the service may be newer."""
    try:
        names = [field.name for field in attrs.fields(cls) if field.name in found]  # type: ignore[arg-type]
        return cls(**{name: found[name] for name in names})
    except TypeError as error:
        raise ForeignAnswer(f"no hostcore service: its answer is no {cls.__name__}: {error}") from error
