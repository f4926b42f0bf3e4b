"""Resolvers that are the reference, with one thing broken each."""

from __future__ import annotations

import itertools
from pathlib import PurePosixPath
from typing import Any

from reference_plugins.resolver import ReferenceResolver

from hostcore_hookspecs import HostcoreError, ResolveContext


class AnswersAPath(ReferenceResolver):
    """Answers with an object."""

    def resolve_ref(self, ref: str, ctx: ResolveContext) -> Any:
        answer = super().resolve_ref(ref, ctx)
        return answer and PurePosixPath("/models") / answer.rpartition("/")[2]


class UnknownProtocol(ReferenceResolver):
    """Answers with a URI of its own making."""

    def resolve_ref(self, ref: str, ctx: ResolveContext) -> str | None:
        answer = super().resolve_ref(ref, ctx)
        return answer and answer.replace("memory://", "model-hub://")


class ExpiringAnswer(ReferenceResolver):
    """Signs each answer anew."""

    _tokens = itertools.count()

    def resolve_ref(self, ref: str, ctx: ResolveContext) -> str | None:
        answer = super().resolve_ref(ref, ctx)
        return answer and f"{answer}?token={next(self._tokens)}"


class AnswersEverything(ReferenceResolver):
    """Takes paths and URIs for its own."""

    def resolve_ref(self, ref: str, ctx: ResolveContext) -> str | None:
        return super().resolve_ref(ref, ctx) or f"{self.settings.store}/default.safetensors"


class RaisesForOthers(ReferenceResolver):
    """Refuses what is not its own, instead of leaving it to others."""

    def resolve_ref(self, ref: str, ctx: ResolveContext) -> str | None:
        if not ref.startswith("reference:"):
            raise HostcoreError(f"not a reference: {ref[:100]!r}")
        return super().resolve_ref(ref, ctx)


class BelievesEveryReference(ReferenceResolver):
    """Takes a reference apart without looking whether it has the parts."""

    def resolve_ref(self, ref: str, ctx: ResolveContext) -> str | None:
        if not ref.startswith("reference:"):
            return None
        family, version = ref.removeprefix("reference:").split("-")
        return f"{self.settings.store}/{family}-{version}.safetensors"


class JoinsWithoutLooking(ReferenceResolver):
    """Puts the name behind the store, whatever it is."""

    def resolve_ref(self, ref: str, ctx: ResolveContext) -> str | None:
        own = ref.startswith("reference:")
        return f"{self.settings.store}/{ref.removeprefix('reference:')}" if own else None
