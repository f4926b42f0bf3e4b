"""``POST /v1/jobs:validate``: everything that can be known of a job before it is submitted."""

from collections.abc import Mapping
from typing import Annotated, Any

import attrs
from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from hostcore.secrets.scrub import scrub, scrubbed
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.submit import dry_run
from hostcore_hookspecs.policy import Principal
from hostcore_service.guard.server_paths import all_without_places
from hostcore_service.http.auth import Asker, authenticate
from hostcore_service.http.body import Body, parse_object
from hostcore_service.http.openapi import ALWAYS, BODY_PROBLEMS, answer, body_of_job, problems
from hostcore_service.http.query import only_known_parameters
from hostcore_service.jobs import examples
from hostcore_service.jobs.checking import check
from hostcore_service.services import Service, the_service

ROUTER = APIRouter(
    tags=["jobs"], dependencies=[Depends(authenticate), Depends(only_known_parameters)], responses=ALWAYS
)


class LaunchPreview(BaseModel):
    """Preview of the launcher's action."""

    summary: str = Field(description="In a line.", examples=["PyTorchJob demo in namespace ml, 2 nodes with 8 GPUs"])
    document: str = Field(description="What it would submit: a manifest, a batch script, a command.")


class Plan(BaseModel):
    """Plan of a job."""

    plugins: list[dict[str, Any]] = Field(description="Every plugin, with its distribution and version.")
    checked: dict[str, Any] | None = Field(
        description="What `hostcore validate --json` finds where the service runs: rows, columns, steps, device, "
        "warnings. Null if that could not be made there."
    )
    unchecked: list[str] = Field(description="What stays unchecked, in sentences.")
    launch: LaunchPreview


class Validated(BaseModel):
    """Valid job, as far as can be checked without running it."""

    job: dict[str, Any] = Field(
        description="The job as resolved: with all defaults, and a run_id. Secrets are references."
    )
    plan: Plan


@ROUTER.post(
    "/v1/jobs:validate",
    response_model=Validated,
    responses={
        200: answer("The job is valid, as far as it can be checked.", examples.VALIDATED),
        **BODY_PROBLEMS,
        **problems(404, 409, 502),
    },
    summary="Validate a job",
    openapi_extra=body_of_job(examples.BODY),
)
async def validate(
    body: Body, asker: Asker, request: Request, service: Annotated[Service, Depends(the_service)]
) -> Validated:
    """Return the plan of a job, or everything that is wrong with it. Nothing is recorded, and nothing is started.

    Its plugins are imported and its data is opened where the service runs, in a process of its own, for at most two
    minutes. Anything that cannot be checked there is in `unchecked`.
    """
    document = await run_in_threadpool(parse_object, body)
    await service.admission.prepare(document, asker)
    plan, plugins, launch = await run_in_threadpool(_planned, document, asker, service)
    done = await check(plan, request)
    return Validated(
        job=plan.spec.to_json(),
        plan=Plan(
            plugins=plugins,
            checked=all_without_places(scrubbed(done.found)) if done.found is not None else None,
            unchecked=all_without_places(list(done.unchecked)),
            launch=launch,
        ),
    )


def _planned(
    document: Mapping[str, Any], asker: Principal, service: Service
) -> tuple[RunPlan, list[dict[str, Any]], LaunchPreview]:
    """The plan, the plugins of it with where they come from, and what its launcher would do."""
    plan = service.admission.plan(document, asker)
    service.admission.require_new(plan)
    planned = dry_run(plan)
    plugins = [attrs.asdict(plan.provenance_of(one)) for one in plan.selected]
    return plan, plugins, LaunchPreview(summary=scrub(planned.summary), document=scrub(planned.document))
