"""Description of plugins by another interpreter, so that this process imports none of them.

A probe (:mod:`hostcore.probe`): ``python -m hostcore.plugins.describe`` reads ``{"job_dir": …, "plugins": […]}``, a
:class:`~hostcore_hookspecs.plan.PluginRef` each, imports the plugins, and may crash with them. It answers
``{"plugins": […]}``, a :class:`Description` each. Names are resolved before, where it is asked.
"""

import inspect
import json
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
import cattrs

from hostcore.errors import all_errors
from hostcore.interruption import handle, interrupt, signal_name
from hostcore.plugins.contract import deprecation_warnings, implementations
from hostcore.plugins.errors import PluginError, as_content, named, one_line
from hostcore.plugins.load import construct, declared_capabilities, import_class
from hostcore.plugins.resolve import Selected
from hostcore.plugins.settings import settings_class
from hostcore.plugins.signatures import Implementation
from hostcore.probe import Probe, answer
from hostcore.secrets.scrub import scrub
from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.plan import PluginRef
from hostcore_hookspecs.step import Capabilities

_T = TypeVar("_T")
_LONGEST_TAIL = 400


@attrs.frozen(kw_only=True)
class Description:
    """A plugin in the worker's interpreter: its settings, hooks and errors."""

    ref: PluginRef
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

    @property
    def name(self) -> str:
        """Return ``distribution/name``, or the import path."""
        return f"{self.ref.dist}/{self.ref.name}" if self.ref.dist else self.ref.name

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        errors = [content for error in self.errors for content in as_content(error)]
        return {"kind": self.ref.kind, "name": self.name, **attrs.asdict(self), "errors": errors}


class DescribeError(HostcoreError):
    """The other interpreter cannot be started, or has no hostcore; its plugins stay unchecked."""

    code = "describe"


def describe(
    refs: Sequence[PluginRef], *, job_dir: Path, python: str = sys.executable, timeout_seconds: float = 120.0
) -> list[Description]:
    """Describe plugins in a process of the interpreter that the worker will use.

    :param job_dir: The job file's folder.
    :param python: The interpreter. It must have hostcore, and the plugins.
    :param timeout_seconds: For all together; importing a large framework takes a while.
    :return: One description each, in the order of the plugins. A plugin that kills the process, or never finishes,
        has an error (``plugin.crashed``, ``plugin.timeout``), and the others their answers.
    :raises DescribeError: The interpreter cannot be started, or has no hostcore.
    """
    if not refs:
        return []
    try:
        return _ask(refs, job_dir=job_dir, python=python, timeout_seconds=timeout_seconds)
    except PluginError as error:
        if len(refs) == 1:
            return [Description(ref=refs[0], errors=(error,))]
    # One of the plugins killed the process; alone, each can only hurt itself.
    return [
        description
        for ref in refs
        for description in describe([ref], job_dir=job_dir, python=python, timeout_seconds=timeout_seconds)
    ]


def _ask(refs: Sequence[PluginRef], *, job_dir: Path, python: str, timeout_seconds: float) -> list[Description]:
    request = json.dumps({"job_dir": str(job_dir), "plugins": [attrs.asdict(ref) for ref in refs]})
    names = ", ".join(Description(ref=ref).name for ref in refs)
    with Probe("hostcore.plugins.describe", question=request, python=python, own_session=False) as probe:
        reply = probe.answer(timeout_seconds)
    if reply.not_started:
        raise DescribeError(
            f"the interpreter {python} cannot be started: {reply.not_started}",
            code="describe.interpreter",
            hint="Check the path; it must be the Python that the worker uses.",
        )
    if reply.hung:
        raise PluginError(
            f"importing {names} was not done after {timeout_seconds:g} seconds",
            code="plugin.timeout",
            hint="Look at what its module does when it is imported: downloads, input, waiting for a server.",
        )
    described, code = reply.last("plugins"), probe.code or 0
    if described is None or code:
        raise _no_answer(reply.output, code, names, python)
    converter = cattrs.Converter()  # passes over "kind" and "name", which repeat those of the plugin
    converter.register_structure_hook(HostcoreError, lambda content, _: PluginError(**content))
    return converter.structure(described, list[Description])


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


def main() -> None:
    """Describe the plugins that standard input names, and end the process."""
    handle(signal.SIGINT, interrupt)  # what else raises KeyboardInterrupt is a plugin
    request = json.loads(sys.stdin.readline())
    job_dir = Path(request["job_dir"])
    answer(lambda say: say(plugins=[_described(PluginRef(**ref), job_dir).as_dict() for ref in request["plugins"]]))


def _described(ref: PluginRef, job_dir: Path) -> Description:
    errors: list[HostcoreError] = []

    def attempt(do: Callable[[], _T]) -> _T | None:
        try:
            return do()
        except HostcoreError as error:
            errors.extend(all_errors(error))
            return None

    owner = attempt(lambda: import_class(ref, job_dir=job_dir)[0])
    if owner is None:
        return Description(ref=ref, errors=tuple(errors))
    schema = attempt(lambda: _schema(owner, ref))
    capabilities = attempt(lambda: declared_capabilities(owner, ref))
    found = attempt(lambda: _implementations(owner, ref)) or ()
    return Description(
        ref=ref,
        doc=_first_paragraph(owner),
        settings_schema=schema,
        capabilities=capabilities or Capabilities(),
        hooks=tuple(one.hook for one in found if not one.wrapper),
        wraps=tuple(one.hook for one in found if one.wrapper),
        deprecated=deprecation_warnings([(ref, found)]),
        errors=tuple(errors),
    )


def _implementations(owner: type, ref: PluginRef) -> tuple[Implementation, ...]:
    """Read the hooks of the class; of an instance for trainers, which need no settings to be made."""
    if ref.kind != "trainer":
        return implementations(owner, ref)
    return implementations(owner, ref, instance=construct(owner, {}, Selected(ref=ref)))


def _schema(owner: type, ref: PluginRef) -> dict[str, Any] | None:
    declared = settings_class(owner, ref)
    if declared is None:
        return None
    from hostcore.job.forms import json_schema

    try:
        schema: dict[str, Any] = json_schema(declared)
        json.dumps(schema)
    except HostcoreError:
        raise
    except Exception as error:
        raise PluginError(
            f"{named(ref)}: {declared.__qualname__} cannot be told as a JSON Schema: {one_line(error)}",
            code="plugin.settings_class",
            hint="Give every field a type that JSON has, and a default that JSON can hold.",
            about=ref,
        ) from error
    return schema


def _first_paragraph(owner: type) -> str:
    # Not inspect.getdoc alone: that inherits, down to "The base class of the class hierarchy".
    doc = owner.__doc__
    return " ".join(inspect.cleandoc(doc).partition("\n\n")[0].split()) if isinstance(doc, str) else ""


if __name__ == "__main__":
    main()
