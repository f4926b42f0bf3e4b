"""Where things of the repository lie that tests look at."""

from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
EXTENSIONS = ROOT / "extensions"
#: What the distributions in there are called, after `hostcore-`.
EXTENSION_NAMES = tuple(sorted(path.parent.name for path in EXTENSIONS.glob("*/pyproject.toml")))
#: The folder of the host's modules, as tracebacks name them. The checkout may be called `hostcore`, too.
HOST = f"{Path(find_spec('hostcore').origin).parent}/"
