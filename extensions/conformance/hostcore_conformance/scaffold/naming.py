"""From the name of a plugin to those of its distribution, package and class; and which names are refused."""

import keyword
import re
import sys
from typing import Final

import attrs

from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.kinds import KINDS, Kind

#: Longer ones do not fit on a line of the generated code, and are tedious to type.
MAX_LENGTH: Final = 40

#: The rule by which discovery accepts a name; beyond it, a distribution's name ends in a letter or digit.
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")
_PACKAGE: Final = re.compile(r"[a-z][a-z0-9_]*")

#: What hostcore itself, its plugins and the tools of a plugin's author import.
_IMPORTED: Final = frozenset(
    {
        "annotated_types", "attr", "attrs", "cattr", "cattrs", "click", "fsspec", "functorch", "hatchling",
        "matplotlib", "mlflow", "mypy", "numpy", "orjson", "packaging", "pandas", "pip", "pkg_resources", "pluggy",
        "prometheus_client", "pyarrow", "pytest", "redis", "rich", "ruamel", "ruff", "s3fs", "safetensors", "scipy",
        "setuptools", "sklearn", "stamina", "tensorboard", "tensorflow", "torch", "torchgen", "torchvision",
        "transformers", "urllib3", "wheel", "yaml",
    }
)  # fmt: skip
#: What stands, or may come to stand, beside the package in its folder.
_BESIDE: Final = frozenset(
    {
        "build", "conftest", "data", "demo_trainer", "dist", "doc", "docs", "example", "examples", "harness",
        "logs", "mirror", "models", "reports", "runs", "script", "scripts", "setup", "site_packages", "src", "test",
        "tests",
    }
)  # fmt: skip


class InvalidName(HostcoreError):
    """A plugin cannot have this name."""

    code = "scaffold.name"


@attrs.frozen(kw_only=True)
class Names:
    """Names of a plugin and its parts."""

    kind: Kind
    #: In jobs; also the distribution's name, and the folder's.
    plugin: str
    #: As Python imports it.
    package: str
    class_name: str


def kind_named(text: str) -> Kind:
    """The kind of a name as it is written on command lines: ``data-source``.

    :raises InvalidName: If there is none.
    """
    spellings = {spelling(kind): kind for kind in KINDS.values()}
    if (found := spellings.get(text.replace("_", "-"))) is not None:
        return found
    import difflib

    near = difflib.get_close_matches(text.lower().replace("_", "-"), spellings, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else None
    raise InvalidName(
        f"there is no kind {text!r}; the kinds are {', '.join(spellings)}", code="scaffold.kind", hint=hint
    )


def spelling(kind: Kind) -> str:
    """A kind as it is written on command lines."""
    return kind.name.replace("_", "-")


def choose_names(kind: Kind, plugin: str, package: str | None = None) -> Names:
    """The names of a new plugin.

    :param plugin: The name that jobs will use.
    :param package: The name that Python imports; made of the plugin's if None.
    :raises InvalidName: If one of them cannot be used, or would stand in the way of something else.
    """
    _check_plugin(plugin)
    chosen = re.sub(r"[.-]", "_", plugin) if package is None else package
    problem = _problem_of_package(chosen)
    if problem:
        subject = f"the package of {plugin!r} would be called {chosen!r}, and" if package is None else f"{chosen!r}:"
        hint = f"choose another name, such as {_better(kind, plugin)!r}, or name the package alone with --package"
        raise InvalidName(f"{subject} {problem}", code="scaffold.package", hint=hint)
    return Names(kind=kind, plugin=plugin, package=chosen, class_name=_class_name(chosen, kind))


def _check_plugin(name: str) -> None:
    if not _NAME.fullmatch(name):
        proposal = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("._-")[:MAX_LENGTH].rstrip("._-")
        raise InvalidName(
            f"{name!r} cannot be the name of a plugin: it has lower-case letters, digits, '.', '_' and '-', and begins "
            "and ends with a letter or digit",
            hint=f"such as {proposal!r}" if proposal else "such as 'my-trainer'",
        )
    _check_length(name, "name")


def _check_length(name: str, what: str) -> None:
    if len(name) > MAX_LENGTH:
        raise InvalidName(
            f"{name!r} has {len(name)} characters", hint=f"a {what} that people type has at most {MAX_LENGTH}"
        )


def _problem_of_package(name: str) -> str | None:
    """Return the problem of an import name, as the rest of a sentence about it; None without one."""
    _check_length(name, "package's name")
    if not _PACKAGE.fullmatch(name):
        return "a package's name has lower-case letters, digits and '_', and begins with a letter"
    if keyword.iskeyword(name):
        return "that is a keyword of Python"
    if name in sys.stdlib_module_names:
        return "that is a module of Python's standard library, which it would hide"
    if name.startswith("hostcore"):
        return "names that begin with 'hostcore' are hostcore's own"
    if name in _IMPORTED:
        return "that is a package that hostcore or its plugins import, which it would hide"
    if name in _BESIDE:
        return "that is what other files and folders of a project are called, which it would be mixed up with"
    return None


def _better(kind: Kind, name: str) -> str:
    """A name that is none of those refused."""
    stem = re.sub(r"^(hostcore[._-]*)?[0-9._-]*", "", name)[: MAX_LENGTH - 15].rstrip("._-")
    return f"{stem or 'my'}-{spelling(kind)}"


def _class_name(package: str, kind: Kind) -> str:
    """``my_data`` of a data source is ``MyDataSource``."""
    name = "".join(part.capitalize() for part in package.split("_"))
    noun = kind.name.rpartition("_")[2].capitalize()
    return name if name.endswith(noun) else name + noun
