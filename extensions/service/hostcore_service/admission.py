"""From a document that came over HTTP to a job that is recorded: checked, allowed, authorized."""

import hashlib
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import attrs
from fastapi.concurrency import run_in_threadpool

from hostcore.errors import Errors, all_errors
from hostcore.events.writer import now_ms
from hostcore.job.json_values import to_plain
from hostcore.job.names import BUILTIN, engine_name, make_run_id
from hostcore.job.pointers import escaped
from hostcore.job.sections import DeliveryUse
from hostcore.job.spec import JobSpec
from hostcore.plugins.installed import Discovered
from hostcore.plugins.load import Component
from hostcore.supervisor.authorizing import authorize, operator_policies, policies_of
from hostcore.supervisor.delivery.subscription import FSSPEC
from hostcore.supervisor.operator_file import OperatorFile
from hostcore.supervisor.plan import RunPlan, make_plan
from hostcore.supervisor.submit import dry_run
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.policy import Principal
from hostcore_service.descriptions import Descriptions
from hostcore_service.guard.declared import asked_plugins, undeclared_places
from hostcore_service.guard.from_others import code_plugins, parts_of, require_allowed
from hostcore_service.http.problems import RequestError
from hostcore_service.launchers import launcher_use, operators_launcher, plain
from hostcore_service.settings import Settings
from hostcore_service.store.job import StoredJob
from hostcore_service.store.jobs import JobExists, Jobs, job_exists

#: Of a trainer's name, an owner, a label's key, in characters: what the database's columns hold.
_LONGEST: Final = 256
#: The reporter that a job has without naming it.
_TERMINAL: Final = to_plain(DeliveryUse(use=f"{BUILTIN}terminal"))


@attrs.frozen(kw_only=True)
class Origin:
    """Origin of a submitted job."""

    principal: Principal
    #: ``jobs`` or ``train``.
    route: str
    #: The header ``Idempotency-Key``; None without one.
    idempotency_key: str | None = None
    #: The body as it came.
    body: bytes = b""

    @property
    def request_sha256(self) -> str:
        """SHA-256 that distinguishes requests with the same idempotency key."""
        return hashlib.sha256(self.route.encode() + b"\0" + self.body).hexdigest()


@attrs.frozen(kw_only=True)
class Admission:
    """The way of a document to the database."""

    settings: Settings
    jobs: Jobs
    discovered: Discovered
    policies: Sequence[Component]
    descriptions: Descriptions

    @classmethod
    def of(
        cls, settings: Settings, jobs: Jobs, discovered: Discovered, descriptions: Descriptions | None = None
    ) -> "Admission":
        """Return one with the operator's policies loaded.

        :raises HostcoreError: When one of them cannot be, or one of the operator's launchers.
        """
        policies = operator_policies(settings.operator, discovered)
        _require_launchers(settings.operator, discovered)
        return cls(
            settings=settings,
            jobs=jobs,
            discovered=discovered,
            policies=policies,
            descriptions=descriptions or Descriptions(settings.runs),
        )

    async def prepare(self, document: Mapping[str, Any], principal: Principal) -> None:
        """Have the plugins described whose settings hold a place: :meth:`plan` then answers at once.

        Nothing of a job is imported before it was found to be allowed; otherwise :meth:`plan` has the error.
        """
        plugins = [one for one in asked_plugins(document) if not self.descriptions.known(*one)]
        if plugins:
            with suppress(HostcoreError):
                await run_in_threadpool(self.permitted, document, principal)
                for plugin in plugins:
                    await self.descriptions.asked(*plugin)

    async def prepare_again(self, job: StoredJob, principal: Principal) -> None:
        """Do as :meth:`prepare` does, for :meth:`again`."""
        await self.prepare(_as_asked(job, self.settings.operator), principal)

    def plan(self, document: Mapping[str, Any], principal: Principal) -> RunPlan:
        """Return the plan of a submitted document, checked, authorized, and dry-run by its launcher.

        :raises HostcoreError: Everything that is wrong with it, not allowed in it, or denied.
        :raises SQLAlchemyError: The database is gone; raised before the job is checked.
        """
        plan = self.permitted(document, principal)
        if errors := list(undeclared_places(document, self.descriptions.schema)):
            raise Errors(errors)
        dry_run(plan)  # a launcher's refusal is reported now, before the run_id is spent
        return plan

    def permitted(self, document: Mapping[str, Any], principal: Principal) -> RunPlan:
        """Return the plan of a document that is allowed and authorized; no plugin of the job is imported.

        :raises HostcoreError: Everything that is wrong with it, not allowed in it, or denied.
        :raises SQLAlchemyError: The database is gone; raised before the job is checked.
        """
        self.jobs.require_there()
        operator = self.settings.operator
        document = _with_run_id(document)
        require_allowed(document, operator.http, self.discovered)
        run_dir = self.settings.runs / str(document["run_id"])
        document = {**document, "launcher": launcher_use(document.get("launcher"), operator)}
        if not operator.http.import_paths and document.get("import_paths") is not False:
            document["import_paths"] = code_plugins(document, operator.http)
        plan = make_plan(document, runs=self.settings.runs, job_dir=run_dir, load=False, discovered=self.discovered)
        asked = policies_of(operator, plan) if plan.spec.policies else self.policies
        authorize(plan, principal, over_http=True, policies=asked)
        return plan

    def submit(self, document: Mapping[str, Any], origin: Origin, *, name: str | None = None) -> tuple[StoredJob, bool]:
        """Record a job.

        :param name: What engines are to call it; made from the run_id if not given.
        :return: The job, and whether it is new: a request that was made before is answered with what it made then.
        :raises HostcoreError: See :meth:`plan`; when there is such a job already, or no room for one more.
        """
        if (earlier := self.replayed(origin)) is not None:
            return earlier, False
        plan = self.plan(document, origin.principal)
        try:
            self.require_new(plan)
        except JobExists:
            if (earlier := self.replayed(origin)) is None:
                raise
            return earlier, False  # two of the same came at the same time
        spec, now = plan.spec, now_ms()
        launch_id = new_launch_id(spec.run_id)
        _require_short(spec)
        job = self.jobs.add(
            StoredJob(
                run_id=spec.run_id,
                name=name or self._free_name(spec.run_id),
                job=spec.to_json(),
                trainer=spec.trainer,
                launcher=spec.launcher.use,
                owner=spec.owner,
                principal=origin.principal.name,
                route=origin.route,
                idempotency_key=origin.idempotency_key,
                request_sha256=origin.request_sha256,
                launch_id=launch_id,
                max_steps=spec.max_steps,
                submitted_ms=now,
                updated_ms=now,
            ),
            most_open=self.settings.operator.http.max_submitted,
        )
        if job.launch_id == launch_id:
            return job, True
        return _same_request(job, origin), False  # two of the same came at the same time

    def require_new(self, plan: RunPlan) -> None:
        """See that there is no such job, and no run of its name in the folder of the runs.

        :raises JobExists: There is one; or ``hostcore run`` has made such a run, which would be taken for the job's.
        """
        run_id = plan.spec.run_id
        if self.jobs.get(run_id) is not None:
            raise job_exists(f"with the run_id {run_id!r}")
        if plan.directory.path.exists():
            raise JobExists(
                f"there is a run {run_id!r} already, which was not submitted here",
                pointer="/run_id",
                hint="choose another run_id, or leave it out to have one made",
            )

    def again(self, job: StoredJob, principal: Principal) -> Mapping[str, Any]:
        """A job that is to be launched once more: allowed as things are now, with its launcher as it is set up now.

        :raises HostcoreError: See :meth:`plan`.
        """
        return self.plan(_as_asked(job, self.settings.operator), principal).spec.to_json()

    def replayed(self, origin: Origin) -> StoredJob | None:
        """The job that the same request has made before; None if there is none.

        :raises RequestError: 422: the key was used for another request.
        """
        if origin.idempotency_key is None:
            return None
        earlier = self.jobs.by_key(origin.principal.name, origin.idempotency_key)
        return _same_request(earlier, origin) if earlier is not None else None

    def _free_name(self, run_id: str) -> str:
        """Return a name for a new job; run ids that engines see as the same name get a suffix."""
        name = engine_name(run_id)
        if self.jobs.by_name(name) is None or self.jobs.get(run_id) is not None:
            return name
        return f"{name[:58].rstrip('-')}-{hashlib.sha256(run_id.encode()).hexdigest()[:4]}"


def _require_short(spec: JobSpec) -> None:
    """See that jobs can be found by what they have: an index takes no text without end."""
    short = {"/trainer": spec.trainer, "/owner": spec.owner or ""}
    short |= {f"/labels/{escaped(key)}": key for key in spec.labels}
    long = [pointer for pointer, text in short.items() if len(text) > _LONGEST]
    if long:
        message = f"more than {_LONGEST} characters, by which no service finds jobs"
        raise Errors([RequestError(message, code="value.range", pointer=pointer) for pointer in long])


def new_launch_id(run_id: str) -> str:
    """Names one launch of a run."""
    return f"{run_id}.{secrets.token_hex(8)}"


def _same_request(job: StoredJob, origin: Origin) -> StoredJob:
    if job.request_sha256 != origin.request_sha256:
        raise RequestError(
            f"the Idempotency-Key was used before, for another request: it has made the job {job.run_id!r}",
            code="request.key_reused",
            hint="use a new key for a new job",
        )
    return job


def _as_asked(job: StoredJob, operator: OperatorFile) -> dict[str, Any]:
    """A recorded job without what the host has added to the request: the host adds it again."""
    asked = dict(job.job)
    if asked.get("reporters", [])[-1:] == [_TERMINAL]:
        asked["reporters"] = asked["reporters"][:-1]
    if asked.get("checkpoint_base_uri") is not None and asked.get("uploaders", [])[-1:] == [FSSPEC]:
        asked["uploaders"] = asked["uploaders"][:-1]
    for key in ("dataset", "validation", "test"):
        if data := asked.get(key):
            asked[key] = _without_source(data)
            if parts := parts_of(data):
                asked[key]["of"] = [_without_source(part) for part in parts]
    if not operator.http.import_paths:
        asked.pop("import_paths", None)
    # Its settings are the operator's, and so is the choice if the job has made none.
    is_default = plain(job.launcher) == plain(operator.launcher.use)
    return {**asked, "launcher": None if is_default else job.launcher}


def _without_source(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return data without the source that follows from its keys."""
    own = {"parquet_paths": f"{BUILTIN}parquet", "of": f"{BUILTIN}mix"}
    follows = any(key in data and data.get("source") == source for key, source in own.items())
    return {name: value for name, value in data.items() if not follows or name != "source"}


def _with_run_id(document: Mapping[str, Any]) -> dict[str, Any]:
    if document.get("run_id") not in (None, ""):
        return dict(document)
    trainer = document.get("trainer")
    name = trainer if isinstance(trainer, str) else "run"
    run_id = make_run_id(name, now=lambda: datetime.now(UTC), token=lambda: os.urandom(4).hex())
    return {**document, "run_id": run_id}


def _require_launchers(operator: OperatorFile, discovered: Discovered) -> None:
    """See that the launchers of the operator's file are installed, and have settings that they take.

    :raises HostcoreError: What is wrong with the first that cannot be loaded; it names the file and the place in it.
    """
    for name, place in ((None, "/launcher"), *((name, f"/launchers/{escaped(name)}") for name in operator.launchers)):
        try:
            operators_launcher(name, operator, discovered)
        except HostcoreError as error:
            for one in all_errors(error):
                one.pointer = place + (one.pointer or "").removeprefix("/launcher")
                one.file = one.file or (str(operator.path) if operator.path else None)
            raise
