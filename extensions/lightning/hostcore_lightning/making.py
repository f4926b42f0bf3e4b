"""Create objects of the user's classes from a job's settings, with errors that name the class and the cause."""

import inspect
from collections.abc import Mapping
from typing import Any

from hostcore_hookspecs import ImportPath
from hostcore_lightning.settings import CannotRun


def made(path: ImportPath[type], init: Mapping[str, Any], base: type, *, pointer: str) -> Any:
    """An instance of the class that a path names.

    :param init: What its constructor is given.
    :param base: What it must be a subclass of.
    :param pointer: Where the hyperparameters have the path; ``init`` is beside it.
    :raises CannotRun: It is no such class, or its constructor does not take what it is given.
    """
    cls = path.load()
    if not issubclass(cls, base):
        raise CannotRun(pointer, f"{path} is no {base.__name__} but {_kind(cls)}", hint=_hint(cls, base))
    beside = {"/module": "/init", "/datamodule": "/datamodule_init"}.get(
        pointer, f"{pointer.removesuffix('/use')}/init"
    )
    try:
        inspect.signature(cls).bind(**init)
    except TypeError as error:
        raise CannotRun(
            beside, f"{path} cannot be made of this: {error}", hint=f"it takes {inspect.signature(cls)}"
        ) from None
    return cls(**init)


def overrides(cls: type, method: str, base: type) -> bool:
    """Return whether a class has a method of its own in place of that of its base."""
    return getattr(cls, method) is not getattr(base, method)


def _kind(cls: type) -> str:
    return f"a {' and '.join(one.__qualname__ for one in cls.__bases__)}"


def _hint(cls: type, base: type) -> str:
    old = f"pytorch_lightning's {base.__name__}"
    if any(one.__module__.startswith("pytorch_lightning") and one.__name__ == base.__name__ for one in cls.__mro__):
        return f"it is {old}: write `import lightning.pytorch as pl` in place of `import pytorch_lightning as pl`"
    return f"name a subclass of lightning.pytorch.{base.__name__}"
