"""The policy contract: decides whether a job may run."""

import attrs

from hostcore_hookspecs.markers import hookspec
from hostcore_hookspecs.plan import Plan

REQUIRED = ("authorize_job",)


@attrs.frozen(kw_only=True)
class Principal:
    """Submitter of a job."""

    name: str
    groups: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Denial:
    """Refusal of a job, with its reason."""

    reason: str
    #: What the user can do about it.
    hint: str | None = None


@attrs.frozen(kw_only=True)
class PolicyContext:
    """Context of a policy: the plan, and its route."""

    plan: Plan
    #: Whether the job came through the service, not from a shell on this machine.
    over_http: bool


@hookspec
def authorize_job(plan: Plan, principal: Principal, ctx: PolicyContext) -> Denial | None:
    """Called for every job before it starts. All policies are asked; one denial, or an exception, denies.

    :param plan: The job and its plugins.
    :param principal: Who submits it.
    :param ctx: How it came in.
    :raises Exception: Denies the job.
    """
