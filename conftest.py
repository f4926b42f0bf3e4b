"""Fixtures that the tests of the host and of the extensions share."""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
import signal
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import pytest
from thoroughness import SEED, SEED_VARIABLE

# Tests that run beside each other train on few cores: OpenMP's waiting threads would take them from each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Under nohup, or in the background of a script, these are ignored, and every process started here would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
_HANDLERS = {
    number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
}

#: Modules that have outlived a test: those of the product and of the suites.
_KEPT: dict[str, object] = {}
#: Times for sites, in seconds since 1970, none of them twice.
_MOMENTS = itertools.count(1)


@attrs.frozen
class Site:
    """A folder of really installed distributions, as pip would leave them, that can be put on ``sys.path``."""

    path: Path

    def install(
        self,
        distribution: str,
        *,
        version: str = "1.0",
        modules: Mapping[str, str],
        entry_points: Mapping[str, Mapping[str, str]] | str,
        requires: Sequence[str] = ("hostcore-hookspecs>=1,<2",),
    ) -> Path:
        """Install a distribution and return its ``.dist-info`` folder.

        :param modules: Source by file name: ``{"my_trainer.py": "class Trainer: ..."}``; dedented.
        :param entry_points: ``{"hostcore.trainers": {"mine": "my_trainer:Trainer"}}``, or the raw text of the file.
        """
        stem = distribution.replace("-", "_")
        info = self.path / f"{stem}-{version}.dist-info"
        info.mkdir(parents=True)
        files = {name: textwrap.dedent(source) for name, source in modules.items()}
        metadata = ["Metadata-Version: 2.1", f"Name: {distribution}", f"Version: {version}"]
        files[f"{info.name}/METADATA"] = "\n".join([*metadata, *(f"Requires-Dist: {r}" for r in requires), ""])
        if isinstance(entry_points, str):
            text = entry_points
        else:
            text = "".join(
                f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
                for group, entries in entry_points.items()
            )
        files[f"{info.name}/entry_points.txt"] = text
        files[f"{info.name}/INSTALLER"] = "pip\n"
        record = []
        for name, content in files.items():
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content.encode())}")
        record.append(f"{info.name}/RECORD,,")
        (info / "RECORD").write_text("\n".join(record) + "\n")
        # Python looks into a folder again when its time is another one, and many clocks of files tick every 4 or 10 ms.
        moment = next(_MOMENTS)
        os.utime(self.path, (moment, moment))
        return info

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that sees the site."""
        inherited = os.environ.get("PYTHONPATH")
        return {**os.environ, "PYTHONPATH": os.pathsep.join([str(self.path), *([inherited] if inherited else [])])}


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A command that a test has called in this process leaves handlers of signals, secrets, and modules of the test.

    Its process would end now.
    """
    for number, handler in _HANDLERS.items():
        signal.signal(number, handler)
    if scrub := sys.modules.get("hostcore.secrets.scrub"):
        scrub.forget_all()
    if folder := getattr(item, "funcargs", {}).get("tmp_path"):
        sys.path[:] = [entry for entry in sys.path if not entry.startswith(str(folder))]
        new = [name for name, module in sys.modules.items() if _KEPT.get(name) is not module]
        for name in new:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(f"{folder}{os.sep}"):
                del sys.modules[name]
    _KEPT.update(sys.modules)


@pytest.fixture
def seed() -> int:
    """The seed of random choices, printed for the report of a failure."""
    print(f"{SEED_VARIABLE}={SEED}")
    return SEED


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """An empty site; only processes started with ``site.environment`` see it."""
    path = tmp_path / "site"
    path.mkdir()
    return Site(path)


@pytest.fixture
def site_here(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """An empty site that this process sees as well."""
    monkeypatch.syspath_prepend(str(site.path))
    return site
