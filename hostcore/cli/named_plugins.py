"""Plugins that a command line names: without their kind, as a person knows them."""

import difflib
from collections.abc import Sequence
from pathlib import Path

from hostcore.plugins.describe import Description, Question, describe
from hostcore.plugins.discover import canonical, discover
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.plan import PluginRef


def describe_named(names: Sequence[str]) -> list[Description]:
    """Import plugins in a process of their own, and describe them.

    :param names: ``name``, ``distribution/name``, or ``module:symbol`` for a trainer in the working directory.
    :raises HostcoreError: When a name is unknown.
    """
    questions = [
        Question(kind=ref.kind, name=f"{ref.dist}/{ref.name}" if ref.dist else ref.name)
        for name in names
        for ref in _installed_as(name)
    ]
    return describe(questions, job_dir=Path.cwd())


def _installed_as(name: str) -> list[PluginRef]:
    """All plugins of a name; of several kinds, if it is taken more than once."""
    if ":" in name:
        return [PluginRef(kind="trainer", name=name, value=name)]
    refs = discover().refs
    distribution, _, plain = name.rpartition("/")
    found = [
        ref
        for ref in refs
        if ref.name == plain and (not distribution or canonical(ref.dist or "") == canonical(distribution))
    ]
    if not found:
        near = difflib.get_close_matches(plain, {ref.name for ref in refs}, n=3)
        raise HostcoreError(
            f"no plugin {name!r} is installed",
            code="plugin.unknown",
            hint=f"did you mean {' or '.join(near)}?" if near else "`hostcore plugins` shows what is installed",
        )
    return found
