"""Checks of a plugin's settings: declared, described, refused and left as they are."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from hostcore.errors import all_errors
from hostcore.plugins.errors import one_line
from hostcore_conformance.check import check
from hostcore_conformance.checks.plugin.declared import content, keys_of, settings_class_of, takes_any_key
from hostcore_conformance.checks.plugin.starting import CannotStart, started_once
from hostcore_conformance.differences import differences
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.errors import HostcoreError

_UNKNOWN: Final = "hostcore_has_no_such_setting"


@check("plugin.settings_schema", requires=("plugin.resolves",))
def settings_schema(subject: Subject) -> None:
    """Every setting has a JSON Schema, and can be written in a job.

    `hostcore schema NAME`, editors and the service show a plugin's settings as a JSON Schema, made from the annotations
    of its settings class. So each field has an annotation whose names exist when the module runs (not only under
    TYPE_CHECKING), of a type that JSON has: numbers, strings, booleans, paths, enumerations, Literal, lists, mappings,
    other attrs classes, Secret, and ImportPath. A field of any other type could not be given by any job.
    """
    declared = settings_class_of(subject)
    if declared is None:
        return
    from hostcore.job.forms import json_schema

    try:
        schema = json_schema(declared)
    except HostcoreError:
        raise
    except Exception as error:
        raise ConformanceError(
            expected=f"a JSON Schema of {declared.__qualname__}",
            got=one_line(error),
            fix="Give every field a type that JSON has, and a default that JSON can hold.",
        ) from error
    objects = [schema, *schema.get("$defs", {}).values()]
    never = [name for one in objects for name, told in one.get("properties", {}).items() if _takes_nothing(told)]
    if never:
        raise ConformanceError(
            expected="that every setting is of a type that JSON has",
            got=f"{', '.join(never)} of {declared.__qualname__} can be given no value",
            fix="Take a type that JSON has (str, a number, Path, Literal, a list, a mapping, an attrs class), and make"
            " what is needed in the constructor.",
        )


def _takes_nothing(schema: Any) -> bool:
    """Return whether no value but null fits, or none in its lists and mappings."""
    if not isinstance(schema, Mapping):
        return False
    if "anyOf" in schema:
        useful = [one for one in schema["anyOf"] if one != {"type": "null"}]
        return bool(useful) and all(_takes_nothing(one) for one in useful)
    inside = [schema.get("items"), schema.get("additionalProperties"), *schema.get("prefixItems", ())]
    return schema.get("not") == {} or any(_takes_nothing(one) for one in inside)


@check("plugin.declares_settings", level="should", requires=("plugin.resolves",))
def declares_settings(subject: Subject) -> None:
    """The plugin declares a class of its settings.

    A class with attrs, Hyperparams in a trainer and Settings in all others, lets the host refuse a mistyped key or a
    value out of range before the run starts, with its place in the job and a suggestion; it gives users a schema and
    their editor completions. A trainer may take a plain mapping; then lerning_rate is silently ignored. A plugin of
    another kind that declares none takes no settings, which is right if it needs none.
    """
    if settings_class_of(subject) is not None:
        return
    name = subject.kind.settings_class
    other = {"Settings": "Hyperparams", "Hyperparams": "Settings"}[name]
    misnamed = inspect.getattr_static(subject.owner, other, None)
    if inspect.isclass(misnamed) and attrs.has(misnamed):
        got = f"{other}, which is not looked at in a {subject.kind.label}"
    elif subject.kind.name == "trainer":
        got = "none, so that any hyperparameter is taken"
    else:
        return
    raise ConformanceError(
        expected=f"an attrs class {name} in {subject.owner.__qualname__}",
        got=got,
        fix=f"Write it nested, or assign it: {name} = My{name}; with @attrs.frozen and annotated fields.",
    )


@check("plugin.unknown_setting", requires=("plugin.constructs",))
def unknown_setting(subject: Subject) -> None:
    """A setting that the plugin does not have is refused by its name.

    The example's settings are given with one more, hostcore_has_no_such_setting. The host refuses it for every plugin
    with a settings class, and for every plugin without one that is not a trainer, so this fails for a settings class
    that collects unknown keys: a mistyped setting would be ignored, and the run be another one than its author thinks.
    Options that are handed on to a library have a place of their own: options: Mapping[str, Any]. Not asked of a
    trainer that takes a plain mapping; plugin.declares_settings is about that.
    """
    declared = settings_class_of(subject)
    if declared is None and subject.kind.name == "trainer":
        raise NotApplicable("it takes a plain mapping, in which no key is unknown")
    try:
        subject.component({**subject.settings, _UNKNOWN: 1})
    except HostcoreError as error:
        told = [one for one in all_errors(error) if _UNKNOWN in f"{one.message} {one.pointer}"]
        if not told:
            raise ConformanceError(
                expected=f"an error that names the setting {_UNKNOWN}",
                got="; ".join(one.message for one in all_errors(error)),
                fix="Leave unknown keys to the host, which names them and suggests what was meant.",
            ) from error
        return
    collects = f": {declared.__qualname__} collects unknown keys" if declared and takes_any_key(declared) else ""
    raise ConformanceError(
        expected=f"that the setting {_UNKNOWN} is refused",
        got=f"the plugin was constructed with it{collects}",
        fix='Give such options a place of their own, options: Mapping[str, Any], and remove metadata={"rest": True}.',
    )


@check("plugin.defaults", level="should", requires=("plugin.constructs", "plugin.settings_schema"))
def defaults(subject: Subject) -> None:
    """A job may write out every default.

    Each default that JSON can hold is added to the example's settings; the plugin must then be constructed with the
    very same value. A default that its own type or bounds refuse (limit: int = None, rate: Annotated[float, Gt(0)] =
    0.0) makes the schema wrong, and a job that spells out what it does invalid. Write int | None = None, or a bound
    that admits the default. Settings that exclude each other are not tried together: each default is tried alone.
    """
    declared = settings_class_of(subject)
    usual = subject.component().settings
    for name, default in _written_defaults(declared):
        if name in subject.settings:
            continue
        try:
            found = getattr(subject.component({**subject.settings, name: default}).settings, _field(declared, name))
        except HostcoreError as error:
            wrong = [one for one in all_errors(error) if (one.code or "").startswith("value.")]
            if not wrong:
                continue  # it excludes another setting
            raise ConformanceError(
                expected=f"that a job may say {name}: {default!r}, which is the default",
                got="; ".join(one.message for one in wrong),
                fix=f"Let the type and the bounds of {name} admit its default, or choose another default.",
            ) from error
        if content(found) != content(getattr(usual, _field(declared, name))):
            raise ConformanceError(
                expected=f"that {name}: {default!r} in a job is the same as leaving it out",
                got=f"{found!r}, where the default is {getattr(usual, _field(declared, name))!r}",
                fix=f"A path in a job starts at the job's folder, a relative default does not: let {name} be None by"
                " default. A converter must give back what it was given.",
            )


@check("plugin.settings_unchanged", requires=("plugin.constructs",))
def settings_unchanged(subject: Subject) -> None:
    """Neither the constructor nor the start of the plugin writes into its settings.

    What the constructor gets is compared with what the same settings give when nothing is constructed, and again after
    open() (a trainer: after a run of one step on the example job). The job is recorded with the run, shown and compared
    later, and handed to the next attempt: a component that writes into its settings makes all of these lie. Frozen
    classes (@attrs.frozen) are only protected against assignment: settings.columns.append(...) still works. Copy first,
    or take a tuple.
    """
    given, kept = subject.settings, subject.settings
    component = subject.component(given)
    _require_same(kept, given, "the job's settings", "constructed")
    declared = settings_class_of(subject)
    before = content(subject.component().settings) if declared is None else _as_structured(subject, declared)
    _require_same(before, content(component.settings), f"{subject.kind.settings_class}", "constructed")
    try:
        started = started_once(subject, component)
    except CannotStart:
        return  # a failed start is reported by other checks
    for name, (was, now) in started.settings.items():
        _require_same(was, now, name, "started")


@check("plugin.documented", level="should", requires=("plugin.resolves",))
def documented(subject: Subject) -> None:
    """The class has a docstring with its purpose, and so has its settings class.

    The first paragraph of the class's docstring is what `hostcore plugins show NAME` prints; the settings class's is
    the description in the schema. Users choose a plugin by these two sentences. Of a setting, metadata={"help": "..."}
    on its attrs.field is shown as well.
    """
    declared = settings_class_of(subject)
    without = [one.__qualname__ for one in (subject.owner, declared) if one is not None and not _doc(one)]
    if without:
        raise ConformanceError(
            expected="a docstring with its purpose",
            got=f"none on {' and '.join(without)}",
            fix="Write one: a sentence, then whatever else a user has to know.",
        )


def _doc(cls: type) -> str:
    doc = vars(cls).get("__doc__")  # not an inherited one
    return doc.strip() if isinstance(doc, str) and not doc.startswith("Method generated by attrs") else ""


def _written_defaults(declared: Any) -> Iterator[tuple[str, Any]]:
    """The defaults as a job would write them, by key; without those that no job can write."""
    from hostcore.job.json_values import to_plain

    for name, key in keys_of(declared).items():
        default = key.attribute.default
        if key.required or getattr(default, "takes_self", False):
            continue
        value = default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]
        try:
            yield name, to_plain(value)
        except TypeError:
            continue


def _field(declared: Any, key: str) -> str:
    return str(keys_of(declared)[key].attribute.name)


def _as_structured(subject: Subject, declared: Any) -> Any:
    """The content of the settings, as the constructor gets them."""
    from hostcore.job.forms import structure
    from hostcore.secrets.reference import resolve_secrets

    return content(structure(declared, resolve_secrets(subject.settings), base_dir=subject.example.folder))


def _require_same(before: Any, after: Any, what: str, done: str) -> None:
    listed = [f"{one.path} is now {one.got}, and was {one.expected}" for one in differences(before, after)]
    if listed:
        raise ConformanceError(
            expected=f"that {what} are as they were when the plugin has been {done}",
            got="; ".join(listed),
            fix="Copy what is to be changed: columns = [*settings.columns, 'id'].",
        )
