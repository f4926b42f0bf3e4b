"""Describing plugins in another interpreter, so that this process imports none of them.

A probe (:mod:`hostcore.probe`): ``python -m hostcore.plugins.describe_process`` reads ``{"job_dir": …, "plugins":
[{"kind": …, "name": …}, …]}`` and answers ``{"plugins": […]}``, one :class:`Description` each.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from hostcore.interruption import signal_name
from hostcore.plugins.errors import PluginError, as_content, of_content
from hostcore.plugins.resolve import Selected
from hostcore.probe import Probe
from hostcore.secrets.reference import remember_secrets
from hostcore.secrets.scrub import scrub
from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.plan import PluginRef
from hostcore_hookspecs.step import Capabilities

_LONGEST_TAIL = 400


@attrs.frozen(kw_only=True)
class Question:
    """One plugin to describe."""

    kind: str
    #: ``name``, ``distribution/name`` or ``module:symbol``.
    name: str
    #: As a job gives them; then a component is constructed with them. None asks about the class alone.
    settings: Mapping[str, Any] | None = None
    #: Where the job has the settings, and where it names the plugin.
    pointer: str = ""
    named_at: str | None = None

    @classmethod
    def about(cls, selected: Selected) -> "Question":
        """Ask whether a job's use of a plugin works: import, settings, construction, methods."""
        ref = selected.ref
        return cls(
            kind=ref.kind,
            name=ref.name if ref.dist is None else f"{ref.dist}/{ref.name}",
            settings=selected.settings,
            pointer=selected.pointer,
            named_at=selected.named_at,
        )


@attrs.frozen(kw_only=True)
class Description:
    """One plugin, as the worker's interpreter sees it."""

    kind: str
    name: str
    #: None if the name cannot be resolved.
    ref: PluginRef | None = None
    #: The first paragraph of the class's docstring.
    doc: str = ""
    #: The JSON Schema of its settings; None if it declares none.
    settings_schema: Mapping[str, Any] | None = None
    capabilities: Capabilities = attrs.field(factory=Capabilities)
    #: The hooks that it implements, and those that it wraps.
    hooks: tuple[str, ...] = ()
    wraps: tuple[str, ...] = ()
    #: Names of the contract that it uses and that will go: one sentence each.
    deprecated: tuple[str, ...] = ()
    #: Everything that is wrong with it. Those of plugins have their traceback.
    errors: tuple[HostcoreError, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        answer = attrs.asdict(self, filter=attrs.filters.exclude("errors"))
        answer["errors"] = [content for error in self.errors for content in as_content(error)]
        return answer

    @classmethod
    def from_dict(cls, answer: Mapping[str, Any]) -> "Description":
        """The reverse of :meth:`as_dict`. Errors come back as :class:`PluginError`, with their codes."""
        capabilities = answer["capabilities"]
        return cls(
            kind=answer["kind"],
            name=answer["name"],
            ref=PluginRef(**answer["ref"]) if answer["ref"] else None,
            doc=answer["doc"],
            settings_schema=answer["settings_schema"],
            capabilities=Capabilities(**{**capabilities, "precisions": tuple(capabilities["precisions"])}),
            hooks=tuple(answer["hooks"]),
            wraps=tuple(answer["wraps"]),
            deprecated=tuple(answer["deprecated"]),
            errors=of_content(answer["errors"]),
        )


class DescribeError(HostcoreError):
    """The other interpreter cannot be asked at all; what it would have said stays unchecked."""

    code = "describe"


def describe(
    questions: Sequence[Question], *, job_dir: Path, python: str = sys.executable, timeout_seconds: float = 120.0
) -> list[Description]:
    """Describe plugins in a process of the interpreter that the worker will use.

    :param job_dir: The job file's folder.
    :param python: The interpreter. It must have hostcore, and the plugins.
    :param timeout_seconds: For all together; importing a large framework takes a while.
    :return: One description each, in the order of the questions. A plugin that kills the process, or never finishes,
        has an error (``plugin.crashed``, ``plugin.timeout``), and the others their answers.
    :raises DescribeError: The interpreter cannot be started, or has no hostcore.
    """
    if not questions:
        return []
    try:
        return _ask(questions, job_dir=job_dir, python=python, timeout_seconds=timeout_seconds)
    except PluginError as error:
        if len(questions) == 1:
            question = questions[0]
            error.pointer = question.named_at
            return [Description(kind=question.kind, name=question.name, errors=(error,))]
    # One of the plugins killed the process; alone, each can only hurt itself.
    return [
        description
        for question in questions
        for description in describe([question], job_dir=job_dir, python=python, timeout_seconds=timeout_seconds)
    ]


def _ask(questions: Sequence[Question], *, job_dir: Path, python: str, timeout_seconds: float) -> list[Description]:
    request = {"job_dir": str(job_dir), "plugins": [attrs.asdict(question) for question in questions]}
    remember_secrets(request)  # its crash output may contain a secret
    names = ", ".join(question.name for question in questions)
    asked = json.dumps(request)
    with Probe("hostcore.plugins.describe_process", question=asked, python=python, own_session=False) as probe:
        answer = probe.answer(timeout_seconds)
    if answer.not_started:
        raise DescribeError(
            f"the interpreter {python} cannot be started: {answer.not_started}",
            code="describe.interpreter",
            hint="Check the path; it must be the Python that the worker uses.",
        )
    if answer.hung:
        raise PluginError(
            f"importing {names} was not done after {timeout_seconds:g} seconds",
            code="plugin.timeout",
            hint="Look at what its module does when it is imported: downloads, input, waiting for a server.",
        )
    described, code = answer.last("plugins"), probe.code or 0
    if described is not None and code == 0:
        return [Description.from_dict(one) for one in described]
    raise _no_answer(answer.output, code, names, python)


def _no_answer(output: str, code: int, names: str, python: str) -> HostcoreError:
    errors = scrub(output.strip())
    tail = errors.splitlines()[-1][-_LONGEST_TAIL:] if errors else ""
    if "No module named 'hostcore" in tail or "No module named hostcore" in tail:
        return DescribeError(
            f"the interpreter {python} has no usable hostcore: {tail}",
            code="describe.interpreter",
            hint=install_command(python=python),
        )
    how = f"exit code {code}" if code >= 0 else signal_name(-code)
    return PluginError(
        f"the process that imported {names} died ({how})" + (f": {tail}" if tail else ""),
        code="plugin.crashed",
        traceback=errors or None,
        hint=f"Try it alone: {python} -X faulthandler -c 'import MODULE'",
    )
