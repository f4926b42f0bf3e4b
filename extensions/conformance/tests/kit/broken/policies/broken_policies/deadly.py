"""Policies that end or stop the process that asks them about a job without plugins: `policy.odd_jobs` finds them."""

from __future__ import annotations

import ctypes
import os
import threading

import attrs
from reference_plugins.policy import ReferencePolicy

from hostcore_hookspecs import Denial, Plan, PolicyContext, Principal, Secret


class Deadly(ReferencePolicy):
    """Does not survive what it does not expect."""

    def authorize_job(self, plan: Plan, principal: Principal, ctx: PolicyContext) -> Denial | None:
        if not plan.plugins:
            print("the plan has no plugins")
            self.end()
        return super().authorize_job(plan, principal, ctx)

    def end(self) -> None:
        raise NotImplementedError


class Segfaults(Deadly):
    """Reads where nothing is."""

    def end(self) -> None:
        ctypes.string_at(0)


class Exits(Deadly):
    """Leaves, and takes everybody along."""

    def end(self) -> None:
        os._exit(7)


class Hangs(Deadly):
    """Waits for what never comes."""

    def end(self) -> None:
        threading.Event().wait()


class ShowsItsToken(ReferencePolicy):
    """Prints, and raises, what nobody may see."""

    @attrs.frozen
    class Settings:
        """Settings of the policy."""

        token: Secret

    def authorize_job(self, plan: Plan, principal: Principal, ctx: PolicyContext) -> Denial | None:
        print(f"the token is {self.settings.token.value}", flush=True)
        raise ValueError(f"{self.settings.token.value} is not valid any more")
