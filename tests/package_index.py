"""A package index of a test's own, with trainers that say where they run.

Beside them it has links to what is installed here (``linked_wheels``), so that an environment is built from it in
seconds and without a network.
"""

import base64
import hashlib
import textwrap
import zipfile
from collections.abc import Sequence
from pathlib import Path

import attrs
import linked_wheels

#: A trainer that says where it runs.
TRAINER = """
    import sys
    from hostcore_hookspecs import Capabilities, StepResult

    class Trainer:
        CAPABILITIES = Capabilities(distributed=True)

        def setup(self):
            print(sys.executable, flush=True)

        def configure(self):
            return [0.0]

        def prepare_batch(self, raw_batch, state):
            return raw_batch

        def train_step(self, prepared_batch, state):
            state[0] += {step}
            return StepResult(metrics={{"sum": state[0]}})

        def state_dict(self, state):
            return {{"sum": state[0]}}

        def load_state_dict(self, state, payload):
            state[0] = payload["sum"]
"""


@attrs.frozen
class Index:
    """A package index in a folder."""

    path: Path

    @classmethod
    def make(cls, path: Path, linked: Path) -> "Index":
        """An index that has what another one has.

        :param linked: Where :func:`linked_index` has made that.
        """
        path.mkdir()
        for page in linked.iterdir():
            (path / page.name).symlink_to(page)
        return cls(path)

    @property
    def environment(self) -> dict[str, str]:
        """What has uv find it, and nothing else; the caches lie beside it."""
        return {
            "UV_DEFAULT_INDEX": self.path.as_uri(),
            "UV_CACHE_DIR": str(self.path.with_name("uv")),
            "UV_PYTHON_DOWNLOADS": "never",
            "HOSTCORE_ENVIRONMENTS_DIR": str(self.path.with_name("environments")),
        }

    def publish(
        self,
        name: str,
        *,
        version: str = "1.0",
        requires: Sequence[str] = (),
        trainer: str | None = None,
        step: int = 1,
        source: str | None = None,
    ) -> Path:
        """Publish a distribution; its wheel.

        :param trainer: The name of a trainer that it registers, which adds ``step`` at each step.
        :param source: Of another trainer.
        """
        module = name.replace("-", "_")
        info = f"{module}-{version}.dist-info"
        required = "".join(f"Requires-Dist: {one}\n" for one in requires)
        files = {
            f"{module}.py": source or self.source(step),
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        if trainer:
            files[f"{info}/entry_points.txt"] = f"[hostcore.trainers]\n{trainer} = {module}:Trainer\n"
        files[f"{info}/RECORD"] = "".join(f"{at},{_digest(text)},{len(text)}\n" for at, text in files.items())
        page = self.path / name
        page.mkdir(exist_ok=True)
        wheel = page / f"{module}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for at, text in files.items():
                archive.writestr(at, text)
        return self.add(wheel)

    @staticmethod
    def source(step: int) -> str:
        """The module of a trainer that adds ``step`` at each step."""
        return textwrap.dedent(TRAINER).format(step=step)

    def add(self, wheel: Path) -> Path:
        """Publish a wheel."""
        page = self.path / wheel.name.partition("-")[0].replace("_", "-")
        if page.is_symlink():
            page.unlink()  # of what is installed here
        page.mkdir(exist_ok=True)
        if wheel.parent != page:
            wheel = wheel.rename(page / wheel.name)
        wheels = sorted(one.name for one in page.glob("*.whl"))
        (page / "index.html").write_text("<!DOCTYPE html>" + "".join(f'<a href="{one}">{one}</a>' for one in wheels))
        return wheel


def linked_index(folder: Path) -> Path:
    """Make an index of what is installed here, in a folder; where it is."""
    linked_wheels.make(folder)
    return folder / "index"


def _digest(text: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
