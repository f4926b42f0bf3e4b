"""Policies that are the reference, with one thing broken each."""

from __future__ import annotations

from typing import Any

from reference_plugins.policy import ReferencePolicy

from hostcore_hookspecs import Denial, Plan, PolicyContext, Principal


class SaysTrue(ReferencePolicy):
    """Says whether it is allowed."""

    def authorize_job(self, plan: Plan, principal: Principal, ctx: PolicyContext) -> Any:
        return super().authorize_job(plan, principal, ctx) is None


class DeniesWithoutAReason(ReferencePolicy):
    """Does not say why."""

    def authorize_job(self, plan: Plan, principal: Principal, ctx: PolicyContext) -> Denial | None:
        return Denial(reason="") if not principal.groups else super().authorize_job(plan, principal, ctx)


class KnowsEveryDistribution(ReferencePolicy):
    """Takes the version of a plugin for granted."""

    def authorize_job(self, plan: Plan, principal: Principal, ctx: PolicyContext) -> Denial | None:
        early = [ref.name for ref in plan.plugins if ref.version.startswith("0.")]  # type: ignore[union-attr]
        return Denial(reason=f"{early[0]} is not released") if early else super().authorize_job(plan, principal, ctx)


class LooksAtTheFirstPlugin(ReferencePolicy):
    """Takes it for granted that there is one."""

    def authorize_job(self, plan: Plan, principal: Principal, ctx: PolicyContext) -> Denial | None:
        if plan.plugins[0].name in self.settings.restricted and ctx.over_http:
            return Denial(reason="not for everybody")
        return super().authorize_job(plan, principal, ctx)


class SetsADefault(ReferencePolicy):
    """Writes into the job what it wants to read there."""

    def authorize_job(self, plan: Plan, principal: Principal, ctx: PolicyContext) -> Denial | None:
        plan.job.labels.setdefault("team", "nobody")  # type: ignore[attr-defined]
        return super().authorize_job(plan, principal, ctx)


class CountsQuestions(ReferencePolicy):
    """Counts questions instead of jobs."""

    def __init__(self, settings: ReferencePolicy.Settings) -> None:
        super().__init__(settings)
        self._asked = 0

    def authorize_job(self, plan: Plan, principal: Principal, ctx: PolicyContext) -> Denial | None:
        self._asked += 1
        if self._asked > 10:
            return Denial(reason=f"{self._asked} jobs today; 10 are allowed")
        return super().authorize_job(plan, principal, ctx)


class NeverDenies(ReferencePolicy):
    """Compares what is never equal."""

    def authorize_job(self, plan: Plan, principal: Principal, ctx: PolicyContext) -> Denial | None:
        return None


class DeniesEverybody(ReferencePolicy):
    """Compares the wrong way round."""

    def authorize_job(self, plan: Plan, principal: Principal, ctx: PolicyContext) -> Denial | None:
        return super().authorize_job(plan, principal, ctx) or Denial(reason="not on the list")
