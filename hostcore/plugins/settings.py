"""Settings of a component: the class that describes them, and the values that a job gives."""

import inspect
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from hostcore.errors import Errors
from hostcore.job.pointers import escaped
from hostcore.plugins.errors import PluginError, named
from hostcore.plugins.resolve import Selected
from hostcore_hookspecs.kinds import KINDS
from hostcore_hookspecs.plan import PluginRef

if TYPE_CHECKING:
    from hostcore.job.forms import CheckObject

#: Folders of the run directory that are the host's, whatever a plugin is called.
_HOST_FOLDERS = frozenset(
    {"attempts", "checkpoints", "config", "control", "cursors", "logs", "plots", "samples", "spool"}
)


def settings_class(owner: type, ref: PluginRef) -> type | None:
    """Return the attrs class that describes the settings of a component, nested or assigned; None if it declares none.

    :raises PluginError: ``plugin.settings_class``: there is something of that name, but no attrs class.
    """
    name = KINDS[ref.kind].settings_class
    declared = inspect.getattr_static(owner, name, None)
    if declared is None:
        return None
    if inspect.isclass(declared) and attrs.has(declared):
        return declared
    found, hint = f"a value of type {type(declared).__name__}", f"Assign an attrs class to {name}."
    if inspect.isclass(declared):
        found = "a class without attrs"
        hint = "Write @attrs.frozen above it, and its fields as annotations: learning_rate: float = 1e-3."
    raise PluginError(
        f"{named(ref)} declares {name}, but it is {found}", code="plugin.settings_class", hint=hint, about=ref
    )


def structured(owner: type, selected: Selected, *, job_dir: Path, check_object: "CheckObject") -> Any:
    """Return the settings that a job gives, secrets resolved: an instance of the class, or a mapping without one.

    :param check_object: Called for every import path.
    :raises Errors: Everything that is wrong with them, with pointers into the job.
    """
    from hostcore.job.forms import structure
    from hostcore.job.sections import dataset_keys
    from hostcore.secrets.reference import resolve_secrets, without_marks

    ref, declared = selected.ref, settings_class(owner, selected.ref)
    settings = resolve_secrets(selected.settings, selected.pointer)
    if declared is not None:
        return structure(
            declared,
            settings,
            pointer=selected.pointer,
            base_dir=job_dir,
            # A mistyped key of a dataset may be one of the host's own.
            elsewhere=dataset_keys() if ref.kind == "data_source" else (),
            check_object=check_object,
        )
    if selected.settings and ref.kind != "trainer":
        label = KINDS[ref.kind].label
        misnamed = attrs.has(inspect.getattr_static(owner, "Hyperparams", object))
        raise PluginError(
            f"{named(ref)} takes no settings, found: {', '.join(map(repr, selected.settings))}",
            code="plugin.no_settings",
            pointer=selected.pointer,
            hint=f"It declares Hyperparams; the settings class of a {label} is called Settings." if misnamed else None,
            about=ref,
        )
    return without_marks(settings)


def refuse_run_files(settings: Any, selected: Selected, run_dir: Path) -> None:
    """Refuse settings that name a place in the run directory, other than below the folder with the plugin's name.

    :raises Errors: ``plugin.run_files``, with the pointer of each.
    """
    ref = selected.ref
    name = ref.value.rpartition(":")[2] if ref.dist is None else ref.name.rpartition("/")[2]
    run = Path(os.path.realpath(run_dir))
    own = run / (f"plugin-{name}" if name in _HOST_FOLDERS else name)
    errors = []
    for pointer, path in _written(settings, selected.pointer):
        try:
            real = Path(os.path.realpath(path))
        except ValueError:  # a name that this locale cannot encode, or with a null character: there is no such file
            continue
        if real.is_relative_to(run) and not real.is_relative_to(own):
            message = f"{named(ref)} may not use the run directory: {path}"
            hint = f"its files are the run's own; name a place outside of it, or below {own}"
            errors.append(PluginError(message, code="plugin.run_files", pointer=pointer, hint=hint, about=ref))
    if errors:
        raise Errors(errors)


def _written(value: Any, pointer: str) -> Iterator[tuple[str, Path]]:
    """Yield the paths in settings, with their pointers, but for those of fields that are only read (``reads``)."""
    if isinstance(value, Path):
        yield pointer, value
    elif isinstance(value, str):
        place = value.removeprefix("file://").removeprefix("local://")
        if place.startswith("/") and "\0" not in place:
            yield pointer, Path(place)
    elif attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            if not field.metadata.get("reads"):
                yield from _written(getattr(value, field.name), f"{pointer}/{field.name}")
    elif isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _written(item, f"{pointer}/{escaped(str(key))}")
