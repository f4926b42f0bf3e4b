"""The process that :mod:`hostcore.plugins.describe` starts: it imports the plugins, and may crash with them."""

import inspect
import json
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from hostcore.errors import all_errors
from hostcore.interruption import handle, interrupt
from hostcore.plugins.component import (
    component_class,
    construct,
    declared_capabilities,
    load_component,
    settings_class,
)
from hostcore.plugins.deprecations import deprecated_uses
from hostcore.plugins.describe import Description, Question
from hostcore.plugins.errors import PluginError, named, one_line
from hostcore.plugins.implementations import implementations
from hostcore.plugins.importing import import_plugin
from hostcore.plugins.installed import Discovered, discover
from hostcore.plugins.resolve import Selected, resolve
from hostcore.plugins.signatures import Implementation
from hostcore.probe import answer
from hostcore.secrets.reference import remember_secrets
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.plan import PluginRef

_T = TypeVar("_T")


def main() -> None:
    """Answer the request, and end the process."""
    handle(signal.SIGINT, interrupt)  # what else raises KeyboardInterrupt is a plugin
    request = json.loads(sys.stdin.readline())
    remember_secrets(request["plugins"])
    answer(lambda say: say(plugins=_described(request)))


def _described(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    discovered, job_dir = discover(), Path(request["job_dir"])
    questions = [Question(**question) for question in request["plugins"]]
    return [describe_here(question, discovered, job_dir=job_dir).as_dict() for question in questions]


def describe_here(question: Question, discovered: Discovered, *, job_dir: Path) -> Description:
    """Describe one plugin in this process."""
    errors: list[HostcoreError] = []
    look = partial(resolve, question.name, question.kind, discovered, pointer=question.named_at, job_dir=job_dir)
    ref = _attempt(errors, look)
    if ref is None:
        return Description(kind=question.kind, name=question.name, errors=tuple(errors))
    owner = _attempt(errors, lambda: _imported_class(ref, question, job_dir=job_dir))
    if owner is None:
        return Description(kind=question.kind, name=question.name, ref=ref, errors=tuple(errors))
    return _of_class(owner, ref, question, errors, job_dir=job_dir)


def _imported_class(ref: PluginRef, question: Question, *, job_dir: Path) -> type:
    symbol = import_plugin(ref, job_dir=job_dir, pointer=question.named_at)
    return component_class(symbol, ref, pointer=question.named_at)


def _of_class(
    owner: type, ref: PluginRef, question: Question, errors: list[HostcoreError], *, job_dir: Path
) -> Description:
    at = question.named_at
    schema = _attempt(errors, lambda: _schema(owner, ref, pointer=at))
    capabilities = _attempt(errors, lambda: declared_capabilities(owner, ref, pointer=at))
    if question.settings is None:
        found = _attempt(errors, lambda: _implementations(owner, ref, pointer=at))
    elif errors:  # constructing it would only tell the same again
        found = None
    else:
        selected = Selected(
            ref=ref, settings=question.settings, pointer=question.pointer, use=ref.name, named_at=at or ""
        )
        component = _attempt(errors, lambda: load_component(selected, job_dir=job_dir))
        found = component.implementations if component else None
    fields: dict[str, Any] = {"capabilities": capabilities} if capabilities else {}
    return Description(
        kind=question.kind,
        name=question.name,
        ref=ref,
        doc=_first_paragraph(owner),
        settings_schema=schema,
        hooks=tuple(one.hook for one in found or () if not one.wrapper),
        wraps=tuple(one.hook for one in found or () if one.wrapper),
        deprecated=tuple(use.message for use in deprecated_uses(ref, found or ())),
        errors=tuple(errors),
        **fields,
    )


def _implementations(owner: type, ref: PluginRef, *, pointer: str | None) -> tuple[Implementation, ...]:
    """Of the class; of an instance for trainers, which need no settings to be made."""
    if ref.kind != "trainer":
        return implementations(owner, ref, pointer=pointer)
    nothing = Selected(ref=ref, settings={}, pointer="", use=ref.name, named_at=pointer or "")
    return implementations(owner, ref, instance=construct(owner, {}, nothing), pointer=pointer)


def _attempt(errors: list[HostcoreError], do: Callable[[], _T]) -> _T | None:
    try:
        return do()
    except HostcoreError as error:
        errors.extend(all_errors(error))
        return None


def _schema(owner: type, ref: PluginRef, *, pointer: str | None) -> dict[str, Any] | None:
    declared = settings_class(owner, ref, pointer=pointer)
    if declared is None:
        return None
    from hostcore.job.schema import json_schema

    try:
        schema: dict[str, Any] = json_schema(declared)
        json.dumps(schema)
    except HostcoreError:
        raise
    except Exception as error:
        raise PluginError(
            f"{named(ref)}: {declared.__qualname__} cannot be told as a JSON Schema: {one_line(error)}",
            code="plugin.settings_class",
            pointer=pointer,
            hint="Give every field a type that JSON has, and a default that JSON can hold.",
            plugin=ref.provenance,
        ) from error
    return schema


def _first_paragraph(owner: type) -> str:
    # Not inspect.getdoc alone: that inherits, down to "The base class of the class hierarchy".
    doc = owner.__doc__
    return " ".join(inspect.cleandoc(doc).partition("\n\n")[0].split()) if isinstance(doc, str) else ""


if __name__ == "__main__":
    main()
