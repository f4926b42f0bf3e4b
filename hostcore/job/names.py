"""The strings with a grammar in a job file: plugin names, run ids, devices."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Final

from hostcore.job.bounds import Pattern
from hostcore_hookspecs.setting_types import DOTTED

#: The keys of a job that hold data.
DATA_SECTIONS: Final = ("dataset", "validation", "test")

_NAME = r"[a-z0-9][a-z0-9._-]*"
_PERIOD = r"[1-9][0-9]{0,5}[smhd]"
_DISTRIBUTION = r"[A-Za-z0-9][A-Za-z0-9._-]*"


def _import_path(text: str) -> str | None:
    """``train.py``, ``train.py:MyTrainer`` and ``train.MyTrainer`` as import paths."""
    file, _, symbol = text.partition(":")
    if file.endswith(".py"):
        return as_import_path(file) + symbol
    module, dot, symbol = text.rpartition(".")
    return f"{module}:{symbol}" if dot and symbol[:1].isupper() else None


def as_import_path(file: str) -> str:
    """The import path of whatever trainer is in a Python file: ``train:`` for ``./train.py``."""
    return f"{file.removeprefix('./').removesuffix('.py').strip('/').replace('/', '.')}:"


def _cuda(text: str) -> str:
    """``gpu``, ``GPU:1`` and ``cuda1`` as devices."""
    return re.sub(r"^(?:gpu|cuda):?(?=[0-9]|$)", lambda _: "cuda:", text.strip().casefold()).removesuffix(":")


def _period(text: str) -> str:
    """``10 min``, ``10M`` and ``90 seconds`` as periods; ``epochs`` as ``epoch``."""
    folded = re.sub(r"[^a-z0-9]", "", text.casefold())
    return "epoch" if folded.startswith("epoch") else re.sub(r"(?<=[0-9][smhd])[a-z]+$", "", folded)


def is_period(text: str) -> bool:
    """Return whether it is a period such as ``10m``."""
    return re.fullmatch(_PERIOD, text) is not None


def seconds_of(period: str) -> float:
    """A period such as ``10m`` in seconds."""
    return int(period[:-1]) * {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}[period[-1]]


def _devices(text: str) -> str:
    """``2`` as so many devices, ``gpu:1`` as one."""
    number = text.strip().lstrip("0")
    return f"auto:{number}" if number.isdecimal() else _cuda(text)


PluginName = Annotated[
    str,
    Pattern(
        rf"({_DISTRIBUTION}/)?{_NAME}|{DOTTED}:({DOTTED})?",
        'the name of a plugin: "name" (lower-case letters, digits, ".", "_", "-"), "distribution/name" '
        'or an import path "module:symbol"',
        _import_path,
    ),
]

#: Of an object: a plugin may also be guessed from its module alone.
IMPORT_PATH: Final = Pattern(rf"{DOTTED}:{DOTTED}", 'an import path "module:symbol"', _import_path)

RunId = Annotated[
    str,
    Pattern(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}",
        'a run id: at most 128 letters, digits, ".", "_" and "-", starting with a letter or digit',
    ),
]

DeviceName = Annotated[
    str,
    Pattern(r"auto|cpu|mps|cuda(:(0|[1-9][0-9]{0,3}))?", 'a device: "auto", "cpu", "mps", "cuda" or "cuda:N"', _cuda),
]

#: How often, if not every so many steps; :func:`seconds_of` reads those that are a time.
PeriodOrEpoch = Annotated[str, Pattern(rf"epoch|{_PERIOD}", '"epoch" or a time such as "90s", "10m" or "2h"', _period)]

#: ``auto:2`` stands for two devices, which the host chooses.
RankDevices = Annotated[
    str,
    Pattern(
        r"auto(:[1-9][0-9]{0,3})?|cpu|mps|cuda(:(0|[1-9][0-9]{0,3}))?",
        'devices: "auto", "auto:N", "cpu", "mps", "cuda" or "cuda:N"',
        _devices,
    ),
]

#: The host's own defaults are written qualified, so that no other distribution can stand in their way.
BUILTIN: Final = "hostcore-builtin-plugins/"


def canonical(distribution: str) -> str:
    """The name of a distribution as package indexes compare it: ``My_Package`` is ``my-package`` (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def canonical_plugin(name: str) -> str:
    """Return the name of a plugin with the canonical name of its distribution, if it has one: ``My_Package/name``."""
    distribution, slash, plain = name.rpartition("/")
    return f"{canonical(distribution)}{slash}{plain}"


def without_builtin(name: str) -> str:
    """Return the name of a plugin without the distribution that ships with hostcore, however that is spelled."""
    return canonical_plugin(name).removeprefix(BUILTIN)


def is_builtin(name: str, builtin: str) -> bool:
    """Return True for the name of a plugin that ships with hostcore, qualified or not."""
    return without_builtin(name) == builtin


def make_run_id(trainer: str, *, now: Callable[[], datetime], token: Callable[[], str]) -> str:
    """A new run id: ``<trainer>-<yyyymmdd-hhmmss in UTC>-<4 hexadecimal digits>``.

    :param now: The clock; its times know their zone.
    :param token: Four random hexadecimal digits, so that two runs started in the same second differ.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]", "-", trainer).strip("._-")[:100] or "run"
    return f"{safe}-{now().astimezone(UTC):%Y%m%d-%H%M%S}-{token()}"


def engine_name(text: str, prefix: str = "job") -> str:
    """A name that every engine takes, a label of RFC 1123: ``meta-meta_demo_001`` becomes ``meta-meta-demo-001``.

    Lower case; whatever is no letter, digit or ``-`` becomes ``-``; it begins with a letter, ends with a letter or a
    digit, and has at most 63 characters.

    :param prefix: What it begins with if nothing is left of the text, or this does not begin with a letter.
    """
    name = re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")
    if not name:
        return prefix
    if not name[0].isalpha():
        name = f"{prefix}-{name}"
    return name[:63].rstrip("-")
