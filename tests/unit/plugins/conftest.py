"""Fixtures of the plugin tests: plugins of one class, installed and loaded."""

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hostcore.errors import all_errors
from hostcore.plugins.installed import discover
from hostcore.plugins.load import Component, load_component
from hostcore.plugins.resolve import Selected, resolve
from hostcore_hookspecs import KINDS, HostcoreError

HEAD = """
import attrs
import functools
from hostcore_hookspecs import Capabilities, InvalidSettings, StepResult, hookimpl, not_a_hook, when_recorded
"""

METHODS = {
    "setup": "def setup(self, ctx): pass",
    "configure": "def configure(self, ctx): return {}",
    "prepare_batch": "def prepare_batch(self, raw_batch, state, ctx): return raw_batch",
    "train_step": "def train_step(self, prepared_batch, state, ctx): return StepResult(metrics={'loss': 1.0})",
    "state_dict": "def state_dict(self, state): return dict(state)",
    "load_state_dict": "def load_state_dict(self, state, payload, ctx): state.update(payload)",
}


class Lab:
    """Installs one plugin at a time and loads it as a job would."""

    def __init__(self, site: Any, job_dir: Path) -> None:
        self.site = site
        self.job_dir = job_dir
        self.count = 0

    def trainer(self, extra: str = "", **methods: str | None) -> str:
        """The source of a trainer; a method can be given another source, or None to leave it out."""
        written = {**METHODS, **methods}
        bodies = [textwrap.dedent(source).strip() for source in written.values() if source is not None]
        body = "\n".join([*bodies, textwrap.dedent(extra)])
        return HEAD + "class Mine:\n" + textwrap.indent(body, "    ")

    def component(self, body: str) -> str:
        """The source of a class ``Mine`` with the given body."""
        return HEAD + "class Mine:\n" + textwrap.indent(textwrap.dedent(body), "    ")

    def install(self, kind: str, source: str, **install: Any) -> Selected:
        """Install a distribution ``dist-N`` whose module registers its class ``Mine`` as ``mine-N``."""
        self.count += 1
        module = f"lab_plugin_{self.count}"
        name = f"mine-{self.count}"
        self.site.install(
            f"dist-{self.count}",
            modules={f"{module}.py": source},
            entry_points={KINDS[kind].group: {name: f"{module}:Mine"}},
            **install,
        )
        return self.select(kind, name)

    def select(self, kind: str, name: str, settings: Mapping[str, Any] | None = None) -> Selected:
        ref = resolve(name, kind, discover([str(self.site.path)]), pointer="/x")
        return Selected(ref=ref, settings=settings or {}, pointer="/x", use=f"{kind}:{name}", named_at="/x")

    def load(self, kind: str, source: str, settings: Mapping[str, Any] | None = None) -> Component:
        installed = self.install(kind, source)
        return self.load_selected(self.select(kind, installed.ref.name, settings))

    def load_path(self, kind: str, path: str, source: str, settings: Mapping[str, Any] | None = None) -> Component:
        """Load an import path, its module written into the job's folder."""
        (self.job_dir / f"{path.partition(':')[0]}.py").write_text(textwrap.dedent(source))
        return self.load_selected(self.select(kind, path, settings))

    def load_selected(self, selected: Selected) -> Component:
        return load_component(selected, job_dir=self.job_dir, import_paths=True)

    def errors(self, do: Callable[[], object]) -> dict[str, HostcoreError]:
        """What goes wrong, by code; fails if nothing does."""
        with pytest.raises(HostcoreError) as raised:
            do()
        return {error.code: error for error in all_errors(raised.value)}

    def error(self, do: Callable[[], object], code: str) -> HostcoreError:
        """The only thing that goes wrong."""
        errors = self.errors(do)
        assert list(errors) == [code], {code: error.message for code, error in errors.items()}
        return errors[code]


@pytest.fixture
def lab(site_here: Any, tmp_path: Path) -> Lab:
    """A site that this process sees, and a job folder."""
    job_dir = tmp_path / "job"
    job_dir.mkdir()
    return Lab(site_here, job_dir)
