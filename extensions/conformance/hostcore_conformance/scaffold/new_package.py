"""The files of a new package: made from the templates, with the author in the licence, and written to the disk."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from string import Template
from typing import Final
from uuid import uuid4

import attrs

from hostcore import __version__
from hostcore_builtin_plugins.extras import clone_of_hostcore, install_command
from hostcore_conformance.scaffold.naming import Names, spelling
from hostcore_hookspecs.api_version import API_VERSION
from hostcore_hookspecs.errors import HostcoreError

#: In the CI of a package whose author has hostcore from a clone.
_CI_CLONE: Final = """\
      # hostcore came from a clone. Set HOSTCORE_REPOSITORY, a variable of this repository, to the address of one.
      - run: git clone --depth 1 "${{ vars.HOSTCORE_REPOSITORY }}" ../hostcore
      - run: cd ../hostcore && pip install ./hookspecs ./toolkit ./builtin_plugins . ./extensions/{chaos,conformance}
"""
_TEMPLATES: Final = Path(__file__).parent / "templates"
_SUFFIX: Final = ".tmpl"
#: Not files of the package, but values of placeholders in shared ones.
_PARTS: Final = "parts"
#: What folders and files are called in the package: hidden ones would be left out of hostcore's own wheel.
_RENAMED: Final = {"github": ".github", "gitignore": ".gitignore"}
#: The kinds whose job needs a trainer, and has no wishes about it.
_WITH_DEMO: Final = frozenset({"callback", "reporter", "uploader"})

#: Stands where the author's name belongs, and is too conspicuous to be published by mistake.
PLACEHOLDER: Final = "[YOUR NAME]"

_GIT_SECONDS: Final = 10


@attrs.frozen(kw_only=True)
class Licence:
    """Author and year of a package."""

    year: int
    #: None: not known yet.
    author: str | None = None


def render(names: Names, licence: Licence) -> dict[str, str]:
    """The content of every file of a new package, by its path in it."""
    values = _values(names, licence)
    kind = _TEMPLATES / names.kind.name
    parts = {path.name.partition(".")[0]: _filled(path, values).rstrip("\n") for path in _files(kind / _PARTS)}
    layers = [_TEMPLATES / "shared", *([_TEMPLATES / "demo"] if names.kind.name in _WITH_DEMO else []), kind]
    return {
        _target(path.relative_to(layer), names): _filled(path, {**values, **parts})
        for layer in layers
        for path in _files(layer)
        if not path.is_relative_to(kind / _PARTS)
    }


def contract_range(version: str) -> str:
    """Return the requirement of a plugin made for a version of the contract: from it on, below the next major one."""
    major, minor, _ = (int(number) for number in version.split("."))
    return f">={major}{f'.{minor}' if minor else ''},<{major + 1}"


def toolkit_range(version: str) -> str:
    """Return the range of the toolkit that a package requires: before 1.0, its next minor version may change it."""
    major, minor = (int(number) for number in version.split(".")[:2])
    return f">={version},<{major + 1}" if major else f">={version},<0.{minor + 1}"


def _values(names: Names, licence: Licence) -> dict[str, str]:
    kind = names.kind
    unknown = f"Put your name in the place of `{PLACEHOLDER}` in `LICENSE`: hostcore did not know it. "
    return {
        "name": names.plugin,
        "key": f'"{names.plugin}"' if "." in names.plugin else names.plugin,  # as TOML wants it
        "package": names.package,
        "class_name": names.class_name,
        "kind": kind.name,
        "kind_option": spelling(kind),
        "label": kind.label,
        "group": kind.group,
        "contract": f"hostcore-hookspecs{contract_range(API_VERSION)}",
        "hostcore": f"hostcore[conformance]>={__version__}",
        "toolkit": f"hostcore-toolkit{toolkit_range(__version__)}",
        **_installation(),
        "year": str(licence.year),
        "author": licence.author or PLACEHOLDER,
        "author_note": "" if licence.author else unknown,
    }


def _installation() -> dict[str, str]:
    """Sentences about hostcore itself, which a package index does not have where it came from a clone."""
    if clone_of_hostcore() is None:
        return {"with_hostcore": "", "ci_hostcore": ""}
    command = install_command("conformance")
    return {"with_hostcore": f" and hostcore of a clone (`{command}`)", "ci_hostcore": _CI_CLONE}


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob(f"*{_SUFFIX}")) if path.is_file())


def _filled(path: Path, values: Mapping[str, str]) -> str:
    """A template with its placeholders filled in; one that has no value is an error of the template."""
    return Template(path.read_text(encoding="utf-8")).substitute(values)


def _target(path: Path, names: Names) -> str:
    renamed = {**_RENAMED, "package": names.package}
    parts = [renamed.get(part, part) for part in path.with_name(path.name.removesuffix(_SUFFIX)).parts]
    return str(PurePosixPath(*parts))


def author_named(text: str) -> str:
    """A name as it was given.

    :raises HostcoreError: If it is none that a licence can carry.
    """
    name = text.strip()
    if not name or not name.isprintable():
        raise HostcoreError(
            f"{text!r} cannot be an author's name" + (": it is empty" if not name else ""),
            code="scaffold.author",
            hint="--author 'Ada Lovelace'",
        )
    return name


def author_of_git(folder: Path) -> str | None:
    """The ``user.name`` that git would write into a commit in a folder; None if it knows none, or is not here."""
    command = ["git", "-C", str(folder), "config", "--get", "user.name"]
    try:
        answer = subprocess.run(
            command, capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=_GIT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    name = answer.stdout.decode("utf-8", "replace").strip()
    return name if answer.returncode == 0 and name and name.isprintable() else None


class CannotWrite(HostcoreError):
    """The folder of a new package cannot be made."""

    code = "scaffold.folder"


def write_package(files: Mapping[str, str], target: Path) -> None:
    """Write the files of a package.

    They are written into a folder beside the target, which then gets its name: an interruption leaves nothing.

    :param files: Content by path below the target.
    :param target: The folder to make. An empty one may be there; the one above it must be.
    :raises CannotWrite: Something is there already, or the disk has an error.
    """
    if not target.parent.is_dir():
        hint = f"make it: mkdir -p {target.parent}"
        raise CannotWrite(f"there is no folder {target.parent} to write to", file=str(target.parent), hint=hint)
    _require_free(target)
    beside = target.with_name(f".{target.name}.{uuid4().hex[:8]}.new")
    try:
        for name, content in files.items():
            path = beside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        beside.rename(target)  # also onto an empty folder, but onto nothing that was made meanwhile
    except OSError as error:
        raise CannotWrite(f"cannot write {target}: {error.strerror or error}", file=str(target)) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _require_free(target: Path) -> None:
    if not target.exists() and not target.is_symlink():
        return
    if target.is_dir() and not target.is_symlink() and not any(target.iterdir()):
        return
    is_full = target.is_dir() and not target.is_symlink()
    what = "is there already, and not empty" if is_full else "is there already, and not a folder"
    hint = "choose another name, or another folder with --into; nothing was changed"
    raise CannotWrite(f"{target} {what}", code="scaffold.exists", file=str(target), hint=hint)
