"""An index of what is installed here, whose wheels link to it: ``python linked_wheels.py FOLDER``.

pip finds in each wheel what the real one says of itself, so it resolves requirements, heeds constraints, refuses what
does not fit and makes commands as always. In place of the files there is a ``.pth`` file, which names a folder with
links to them: an environment that takes minutes of unpacking and compiling is made in seconds, without a network.

Each distribution has a folder of its own, so that an environment has what was installed into it, and nothing else.
"""

from __future__ import annotations

import csv
import os
import re
import sys
import zipfile
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import canonicalize_name

#: These are what is tried: the index has pages of them, so that pip does not warn, and no wheels.
_OWN = "hostcore"
_METADATA = ("METADATA", "entry_points.txt")
_TAG = str(next(sys_tags()))


def make(folder: Path) -> dict[str, str]:
    """Make a wheel of every distribution of this environment, but of those of this project.

    :param folder: For the wheels, and for the links, which have to stay as long as the environments made of them.
    :return: Variables for pip: that it finds these wheels, and no other.
    """
    for distribution in distributions():
        name = canonicalize_name(distribution.name)
        links, page = folder / "links" / name, folder / "index" / name
        for one in (links, page):
            one.mkdir(parents=True)
        text = "<!DOCTYPE html>"
        if not name.startswith(_OWN):
            _link(distribution, links)
            wheel = _write(distribution, links, page)
            text += f'<a href="{wheel}">{wheel}</a>'
        (page / "index.html").write_text(text)
    return {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": (folder / "index").as_uri(),
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        # pip would read what every other distribution requires, for most of its time. `pip check` does the same.
        "PIP_NO_WARN_CONFLICTS": "no",
    }


def _link(distribution: Distribution, target: Path) -> None:
    """Link to the packages and modules of a distribution; of a namespace, to its part alone."""
    here = Path(str(distribution.locate_file("")))
    linked: set[str] = set()
    for file, *_ in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
        parts = file.split("/")
        if ".." in parts or file.endswith((".pth", ".pyc")) or parts[0].endswith(".dist-info"):
            continue  # commands, what an interpreter runs when it starts, and what the wheel itself brings
        folders = ("/".join(parts[:count]) for count in range(1, len(parts)))
        part = next((one for one in folders if one in linked or (here / one / "__init__.py").exists()), file)
        if part not in linked:
            linked.add(part)
            (target / part).parent.mkdir(parents=True, exist_ok=True)
            (target / part).symlink_to(here / part)


def _write(distribution: Distribution, links: Path, folder: Path) -> str:
    """Write the wheel of a distribution; its name."""
    stem = f"{re.sub(r'[-_.]+', '_', distribution.name)}-{distribution.version}"
    info = f"{stem}.dist-info"
    files = {f"{info}/{one}": text for one in _METADATA if (text := distribution.read_text(one))}
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: {_TAG}\n"
    files[f"{stem}-links.pth"] = f"{links}\n"
    files[f"{info}/RECORD"] = "".join(f"{one},,\n" for one in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{stem}-{_TAG}.whl", "w") as wheel:
        for file, content in files.items():
            wheel.writestr(file, content)
    return f"{stem}-{_TAG}.whl"


if __name__ == "__main__":
    for variable, value in make(Path(sys.argv[1])).items():
        print(f"{variable}={value}")
