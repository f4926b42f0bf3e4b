"""Jobs with inputs, a store in memory, and one that fails as it is told to."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from hostcore.job.load import load_job
from hostcore.job.spec import JobSpec
from hostcore.plugins.installed import discover
from hostcore.plugins.load import Component, load_component
from hostcore.plugins.resolve import select
from hostcore.supervisor.remote.inputs import examine_inputs, fetch_inputs


class TroubledFileSystem(MemoryFileSystem):
    """``troubled://``: a store in memory that remembers its listings, and where calls fail as the test says."""

    protocol = "troubled"
    store: dict[str, Any] = {}  # noqa: RUF012 - as its base has it
    pseudo_dirs = [""]  # noqa: RUF012
    cachable = False
    listed: dict[str, Any] = {}  # noqa: RUF012
    #: By method: what it raises, one after the other; None: nothing this time.
    trouble: dict[str, list[BaseException | None]] = {}  # noqa: RUF012
    calls: list[str] = []  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("troubled://")))

    def _go(self, method: str) -> None:
        self.calls.append(method)
        errors = self.trouble.get(method)
        if errors and (error := errors.pop(0)) is not None:
            raise error

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        self._go("info")
        if path not in self.listed:
            self.listed[path] = super().info(path, **kwargs)
        return self.listed[path]

    def invalidate_cache(self, path: str | None = None) -> None:
        self.listed.clear()

    def get_file(self, rpath: str, lpath: str, **kwargs: Any) -> None:
        errors = self.trouble.get("get_file")
        if errors and errors[0] is not None:
            Path(lpath).write_bytes(b"half")  # it fails in the middle
        self._go("get_file")
        super().get_file(rpath, lpath, **kwargs)


@pytest.fixture
def memory() -> Iterator[MemoryFileSystem]:
    """What lies in ``memory://``; empty at the beginning."""
    store = fsspec.filesystem("memory")
    store.store.clear()
    store.pseudo_dirs[:] = [""]
    yield store
    store.store.clear()


@pytest.fixture
def troubled() -> Iterator[type[TroubledFileSystem]]:
    fsspec.register_implementation("troubled", TroubledFileSystem, clobber=True)
    yield TroubledFileSystem
    for state in (TroubledFileSystem.store, TroubledFileSystem.listed, TroubledFileSystem.trouble):
        state.clear()
    TroubledFileSystem.calls.clear()


@attrs.frozen
class Fetcher:
    """Fetches the inputs of jobs."""

    folder: Path
    told: list[str] = attrs.field(factory=list)

    def spec(self, inputs: Mapping[str, Any], **keys: Any) -> JobSpec:
        job = {"trainer": "somewhere:Trainer", "max_steps": 1, "inputs": dict(inputs), **keys}
        return load_job(job, job_dir=self.folder)

    def __call__(self, inputs: Mapping[str, Any], **keys: Any) -> dict[str, Path]:
        spec = self.spec(inputs, **keys)
        return {name: Path(path) for name, path in fetch_inputs(spec, resolvers_of(spec), self.told.append).items()}

    def examine(self, inputs: Mapping[str, Any], **keys: Any) -> None:
        spec = self.spec(inputs, **keys)
        examine_inputs(spec, resolvers_of(spec))

    @property
    def cached(self) -> list[str]:
        """The files of the cache, hidden ones too, but for the locks."""
        cache = self.folder / "cache"
        return [str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file() and path.name != ".lock"]


def resolvers_of(spec: JobSpec) -> Sequence[Component]:
    if not spec.resolvers:
        return ()
    chosen = select(attrs.evolve(spec, reporters=(), trainer="somewhere:Trainer"), discover())
    return [load_component(one, job_dir=Path.cwd(), import_paths=True) for one in chosen if one.ref.kind == "resolver"]


@pytest.fixture
def fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fetcher:
    """``fetch({"model": "memory://model"})``: the paths of fetched inputs; its cache is the test's own."""
    monkeypatch.setenv("HOSTCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("hostcore_builtin_plugins.stores.get.PAUSE_SECONDS", 0.01)
    return Fetcher(tmp_path)


@pytest.fixture
def resolver(site_here: Any) -> Callable[[str, str], str]:
    """``resolver("hub", "return 's3://' + ref")``: install a resolver whose ``resolve_ref(self, ref, ctx)`` is that."""

    def install(name: str, body: str) -> str:
        module = f"{name}_resolver"
        source = f"class Resolver:\n    def resolve_ref(self, ref, ctx):\n        {body}\n"
        site_here.install(
            f"{name}-dist",
            modules={f"{module}.py": source},
            entry_points={"hostcore.resolvers": {name: f"{module}:Resolver"}},
        )
        return name

    return install
