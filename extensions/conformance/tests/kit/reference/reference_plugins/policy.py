"""A policy: some trainers are for the members of a group."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from hostcore_hookspecs import Denial, Job, Plan, PluginRef, PolicyContext, Principal


class ReferencePolicy:
    """Says no to strangers."""

    @attrs.frozen
    class Settings:
        """Settings of the policy."""

        #: Trainers that not everybody may use.
        restricted: Sequence[str] = ("expensive",)
        #: Whose members may.
        group: str = "research"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def authorize_job(self, plan: Plan, principal: Principal, ctx: PolicyContext) -> Denial | None:
        """Look at the plugins, whatever names the job gives them; from a shell, everybody may."""
        trainers = {ref.name for ref in plan.plugins if ref.kind == "trainer"}
        denied = sorted(trainers & set(self.settings.restricted))
        if not denied or not ctx.over_http or self.settings.group in principal.groups:
            return None
        return Denial(
            reason=f"the trainer {denied[0]} is for the group {self.settings.group}",
            hint=f"ask to become a member of {self.settings.group}",
        )


class Decisions:
    """What the policy decides about two jobs that differ in the trainer."""

    principal = Principal(name="ada", groups=("guests",))
    denied = Plan(job=Job(trainer="expensive"), plugins=[PluginRef(kind="trainer", name="expensive", value="a:B")])
    allowed = Plan(job=Job(trainer="cheap"), plugins=[PluginRef(kind="trainer", name="cheap", value="a:B")])
