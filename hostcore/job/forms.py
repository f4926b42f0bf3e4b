"""The form of a JSON value, read from an attrs class or an annotation.

The converter, the JSON Schema and the job reference all read these forms, so that they cannot disagree. A field says
more than its type in its metadata:

``help``
    What the key means, in a sentence.
``default``
    The default in words, where the value itself would not tell.
``rest`` (True)
    The field is no key: it takes all keys that the class does not have.
``shorthand`` (True)
    A plain string in place of the object stands for an object with this key alone.
``key`` (False)
    The field is no key: the host fills it in.
"""

import types
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Annotated, Any, Literal, NewType, Union

import attrs

from hostcore.job.bounds import Bound, bounds_of
from hostcore_hookspecs.errors import HostcoreError


@attrs.frozen(kw_only=True)
class Key:
    """One key of an object."""

    name: str
    #: The annotation of its value.
    form: Any
    attribute: "attrs.Attribute[Any]"

    @property
    def required(self) -> bool:
        """Whether an object without it is wrong."""
        return self.attribute.default is attrs.NOTHING


@attrs.frozen(kw_only=True)
class ObjectForm:
    """The keys of an object that is structured into an attrs class."""

    keys: Mapping[str, Key]
    #: The argument that takes all other keys; None if other keys are wrong.
    rest: str | None = None
    #: The key that a plain string stands for.
    shorthand: str | None = None


def object_form(cls: type[attrs.AttrsInstance]) -> ObjectForm:
    """Read the form of an attrs class.

    :raises HostcoreError: ``settings.class`` if its annotations cannot be resolved.
    """
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise HostcoreError(
            f"the annotations of {qualified_name(cls)} cannot be resolved: {error}",
            code="settings.class",
            hint="whatever its annotations name must be imported when the module runs, outside `if TYPE_CHECKING:`",
        ) from error
    keys: dict[str, Key] = {}
    rest = shorthand = None
    for attribute in attrs.fields(cls):
        argument = attribute.alias or attribute.name
        if not attribute.init or attribute.metadata.get("key") is False:
            continue
        if attribute.metadata.get("rest"):
            rest = argument
            continue
        if attribute.metadata.get("shorthand"):
            shorthand = argument
        untyped = Any if attribute.type is None else attribute.type
        keys[argument] = Key(name=argument, form=hints.get(attribute.name, untyped), attribute=attribute)
    return ObjectForm(keys=keys, rest=rest, shorthand=shorthand)


def bare(form: Any) -> tuple[Any, tuple[Bound, ...]]:
    """An annotation without ``Annotated``, ``Final``, ``NewType`` and ``type`` aliases, and the bounds inside them."""
    bounds: tuple[Bound, ...] = ()
    while True:
        if typing.get_origin(form) is Annotated:
            bounds = (*bounds_of(form.__metadata__), *bounds)
            form = form.__origin__
        elif typing.get_origin(form) is typing.Final:
            (form,) = typing.get_args(form)
        elif isinstance(form, NewType):
            form = form.__supertype__
        elif hasattr(form, "__value__"):  # `type Name = ...`, Python 3.12
            form = form.__value__
        else:
            return form, bounds


def is_union(form: Any) -> bool:
    """Whether a bare form is ``A | B`` or ``Optional[A]``."""
    return typing.get_origin(form) in (Union, types.UnionType)


def arms(form: Any) -> Iterator[Any]:
    """The alternatives of a union, those of unions inside it included."""
    for arm in typing.get_args(form):
        inner, bounds = bare(arm)
        if is_union(inner) and not bounds:
            yield from arms(inner)
        else:
            yield arm


def choices(form: Any) -> tuple[Any, ...] | None:
    """The JSON values that a bare ``Literal`` or ``Enum`` admits; None for other forms."""
    if typing.get_origin(form) is Literal:
        return tuple(value.value if isinstance(value, Enum) else value for value in typing.get_args(form))
    if isinstance(form, type) and issubclass(form, Enum):
        return tuple(member.value for member in form)
    return None


def qualified_name(cls: Any) -> str:
    """How messages name a class: ``my_trainer.Trainer.Hyperparams``."""
    return f"{cls.__module__}.{cls.__qualname__}" if isinstance(cls, type) else str(cls)
