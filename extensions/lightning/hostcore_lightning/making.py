"""Create objects of the user's code from a job's settings, with errors that name the path and the cause.

What a path names may be a class, a function or classmethod that returns an instance, or an instance.
"""

import copy
import inspect
from collections.abc import Mapping
from typing import Any, Final

from lightning.pytorch import LightningModule

from hostcore_hookspecs import ImportPath
from hostcore_lightning.settings import CannotRun

#: Names an object in the arguments of a constructor: ``{"$object": "my_losses:Focal", "init": {"gamma": 2}}``.
_OBJECT: Final = "$object"


def made(path: ImportPath[Any], init: Mapping[str, Any], base: type, *, pointer: str) -> Any:
    """An instance of a class: made anew, or a copy of the one that a path names.

    :param init: Arguments of the class or function. An object in them is named by its import path: see ``_OBJECT``.
    :param base: The class of which it must be an instance.
    :param pointer: Where the hyperparameters have the path; ``init`` is beside it.
    :raises CannotRun: It is something else, or cannot be made of these arguments.
    """
    found, beside = path.load(), _beside(pointer)
    if inspect.isclass(found):
        _check_base(found, path, base, pointer)
    if isinstance(found, base):
        if init:
            raise CannotRun(beside, f"{path} is an instance, which takes no arguments", hint=f"remove {beside[1:]}")
        return copy.deepcopy(found)
    if not callable(found):
        raise CannotRun(pointer, f"{path} is a {type(found).__name__}", hint=_hint(type(found), base))
    instance = _called(found, path, init, beside)
    if not isinstance(instance, base):
        raise CannotRun(
            pointer,
            f"{path} returned a {type(instance).__name__}, no {base.__name__}",
            hint=_hint(type(instance), base),
        )
    return instance


def class_of(path: ImportPath[Any], init: Mapping[str, Any], base: type, *, pointer: str) -> type:
    """The class of what :func:`made` returns; a function is called for it, a class is not.

    :raises CannotRun: As :func:`made`.
    """
    found = path.load()
    if inspect.isclass(found):
        _check_base(found, path, base, pointer)
        _check_arguments(found, path, init, _beside(pointer))
        return found
    return type(found) if isinstance(found, base) else type(made(path, init, base, pointer=pointer))


def overrides(cls: type, method: str, base: type) -> bool:
    """Return whether a class has a method of its own in place of that of its base."""
    return getattr(cls, method) is not getattr(base, method)


def _check_base(cls: type, path: ImportPath[Any], base: type, pointer: str) -> None:
    if not issubclass(cls, base):
        raise CannotRun(pointer, f"{path} is no {base.__name__} but {_kind(cls)}", hint=_hint(cls, base))


def check_class(of: Any) -> None:
    """Check that a module, or its class, has what every training needs.

    :raises CannotRun: It lacks a method.
    """
    cls, own = (of, {}) if inspect.isclass(of) else (type(of), vars(of))
    for method, hint in (
        ("training_step", "give it training_step(self, batch, batch_idx)"),
        ("configure_optimizers", "return an optimizer from it"),
    ):
        if method not in own and not overrides(cls, method, LightningModule):
            raise CannotRun("/module", f"{cls.__name__} has no {method}", hint=hint)


def _called(found: Any, path: ImportPath[Any], init: Mapping[str, Any], beside: str) -> Any:
    arguments = {name: _with_objects(value, f"{beside}/{name}") for name, value in init.items()}
    _check_arguments(found, path, arguments, beside)
    return found(**arguments)


def _check_arguments(found: Any, path: ImportPath[Any], init: Mapping[str, Any], beside: str) -> None:
    """:raises CannotRun: The names are not those that a class or function takes."""
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # written in C
        return
    try:
        signature.bind(**init)
    except TypeError as error:
        raise CannotRun(beside, f"{path} cannot be made of this: {error}", hint=f"it takes {signature}") from None


def _with_objects(value: Any, pointer: str) -> Any:
    """Return an argument with the objects that it names in their places.

    A mapping of another class than JSON's, such as the configuration of ``nemo``, stays as it is.
    """
    if type(value) is dict and _OBJECT in value:
        return _object(value, pointer)
    if type(value) is dict:
        return {key: _with_objects(one, f"{pointer}/{key}") for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_objects(one, f"{pointer}/{index}") for index, one in enumerate(value)]
    return value


def _object(named: Mapping[str, Any], pointer: str) -> Any:
    if others := named.keys() - {_OBJECT, "init"}:
        raise CannotRun(pointer, f"{min(others)!r} stands beside {_OBJECT!r}", hint='only "init" may: its arguments')
    at, init = f"{pointer}/{_OBJECT}", named.get("init")
    try:
        path: ImportPath[Any] = ImportPath(named[_OBJECT])
        found = path.load()
    except (TypeError, ValueError):
        raise CannotRun(at, f"{named[_OBJECT]!r} is no import path", hint='write "module:name"') from None
    except (ImportError, AttributeError) as error:
        raise CannotRun(at, f"{named[_OBJECT]} cannot be imported: {error}") from error
    if init is None:
        return found
    if not isinstance(init, Mapping) or not callable(found):
        raise CannotRun(
            f"{pointer}/init", f"{path} cannot be called with this", hint="leave init out for the object itself"
        )
    return _called(found, path, init, f"{pointer}/init")


def _beside(pointer: str) -> str:
    """Return the pointer of the arguments of what a pointer names."""
    return {"/module": "/init", "/datamodule": "/datamodule_init"}.get(pointer, f"{pointer.removesuffix('/use')}/init")


def _kind(cls: type) -> str:
    return f"a {' and '.join(one.__qualname__ for one in cls.__bases__)}"


def _hint(cls: type, base: type) -> str:
    old = f"pytorch_lightning's {base.__name__}"
    if any(one.__module__.startswith("pytorch_lightning") and one.__name__ == base.__name__ for one in cls.__mro__):
        return f"it is {old}: write `import lightning.pytorch as pl` in place of `import pytorch_lightning as pl`"
    return f"name a subclass of lightning.pytorch.{base.__name__}, or a function that returns an instance"
