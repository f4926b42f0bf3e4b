"""Declaration of plugins that run code or programs which a job names."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hostcore.job.forms import ImportedObject, Object
from hostcore_conformance.check import check
from hostcore_conformance.checks.plugin.declared import keys_of, settings_class_of
from hostcore_conformance.checks.plugin.noting import noted
from hostcore_conformance.checks.plugin.starting import CannotStart, started_once
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.kinds import RUNS_CODE_GROUP

_CODE: Final = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_][\w.]*")


@check("plugin.runs_code", requires=("plugin.resolves", "plugin.settings_schema"))
def runs_code(subject: Subject) -> None:
    """A plugin that runs code or programs which a job names declares it.

    A service takes jobs from others, who may name any plugin that is installed. It refuses the ones that would run what
    the job names, a program or a module, unless its operator allows that plugin; it knows them by their declaration,
    without an import: an entry point in the group hostcore.runs_code with the value of the plugin. Required of a plugin
    that has a setting of type ImportPath, and of one whose example starts a program or imports a module that its
    settings name: in open(), or, of a trainer, in a run of one step.
    """
    if subject.ref.dist is None:
        raise NotApplicable("an import path is code that a job names, and is refused as such")
    if subject.ref.runs_code:
        return
    found = next(_objects(settings_class_of(subject)), None)
    found = f"the setting {found} names an object to be imported" if found else _started(subject)
    if found is not None:
        raise ConformanceError(
            expected=f"an entry point in the group {RUNS_CODE_GROUP}",
            got=f"none, although {found}",
            fix=f'Declare it beside the plugin: [project.entry-points."{RUNS_CODE_GROUP}"] '
            f'{subject.ref.name} = "{subject.ref.value}".',
        )


def _objects(declared: Any) -> Iterator[str]:
    """Yield the settings of type ImportPath, at any depth."""
    waiting, known = [declared], set()
    while waiting:
        cls = waiting.pop()
        if cls in known:
            continue
        known.add(cls)
        for name, key in keys_of(cls).items():
            for form in key.form.inside():
                if isinstance(form, ImportedObject):
                    yield name
                elif isinstance(form, Object):
                    waiting.append(form.cls)


def _started(subject: Subject) -> str | None:
    """Return the program or the module of the example's settings that its start runs, or None."""
    named = set(_texts(subject.settings))
    modules = {found[1] for text in named if (found := _CODE.fullmatch(text))}
    with noted() as constructing:
        try:
            started = started_once(subject, subject.component())
        except CannotStart:
            return None  # that it cannot be started is for other checks
    seen = constructing | started.code
    if programs := named & seen:
        return f"it starts the program {min(programs)!r}, which its settings name"
    if modules & seen:
        return f"it imports the module {min(modules & seen)!r}, which its settings name"
    return None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from _texts(part)
