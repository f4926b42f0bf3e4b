"""hostcore for a machine without a network: wheels that are carried there, and an environment made of them.

A machine with a GPU that is lent for minutes has torch and a driver, and no package index. Here, with a network::

    python benchmarks/gpu_bundle.py collect [--python 3.12] [--dir build/gpu]

There, in a copy of the working tree and of ``build/gpu``, with the Python that has torch::

    python3 benchmarks/gpu_bundle.py install /tmp/gpu [--dir build/gpu]
    /tmp/gpu/bin/python benchmarks/gpu.py

``collect`` builds wheels of hostcore's own distributions as they are in the checkout, and downloads those of the
libraries that they require, in the versions of the environment that it runs in. Left out is what is too large to carry
and usually lies beside torch: torch itself, numpy, pyarrow and matplotlib. ``install`` makes a virtual environment that
sees everything the running Python sees, and installs what is missing there or too old. It needs nothing but pip.
"""

import argparse
import shutil
import site
import subprocess
import sys
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The distributions of the checkout, by their folder.
OWN = {
    "hostcore-hookspecs": "hookspecs",
    "hostcore-toolkit": "toolkit",
    "hostcore-builtin-plugins": "builtin_plugins",
    "hostcore": ".",
    "hostcore-char-lm": "example_trainers/char_lm",
    "hostcore-chaos": "extensions/chaos",
    "hostcore-conformance": "extensions/conformance",
    "hostcore-inspect": "extensions/inspect",
    "hostcore-lightning": "extensions/lightning",
    "hostcore-transformers": "extensions/transformers",
}
#: Without these there is neither benchmark nor test.
REQUIRED = ("hostcore", "hostcore-char-lm", "hostcore-inspect", "pytest", "pytest-xdist")
#: Each is left out, with the reason, where its library does not fit.
OPTIONAL = ("hostcore-conformance", "hostcore-lightning", "hostcore-transformers")
#: Too large to carry: the machine has to have them.
THERE = {"torch", "numpy", "pyarrow", "matplotlib"}
#: What wheels for x86-64 are called; pip compares the names alone.
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (17, 24, 26, 27, 28, 31, 34, 35)] + ["manylinux2014_x86_64"]
#: What a copy of the working tree and of the bundle may weigh together.
LIMIT = 64 << 20


def collect(folder: Path, python: str) -> None:
    """Fill the folder with wheels for another machine's Python."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.whl"):
        stale.unlink()
    pip = [sys.executable, "-m", "pip"]
    own = [str(ROOT / place) for place in OWN.values()]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, *own], check=True)
    target = ["--python-version", python, "--implementation", "cp", "--only-binary=:all:"]
    target += [argument for name in PLATFORMS for argument in ("--platform", name)]
    libraries = libraries_of([*REQUIRED, *OPTIONAL], python)
    subprocess.run([*pip, "download", "-q", "--no-deps", *target, "-d", folder, *libraries], check=True)
    carried = sum(wheel.stat().st_size for wheel in folder.glob("*.whl"))
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tree = sum((ROOT / name).stat().st_size for name in listed.split("\0") if name)
    print(f"{folder}: {carried / 1e6:.1f} MB of wheels, beside a working tree of {tree / 1e6:.1f} MB")
    if carried + tree > LIMIT:
        raise SystemExit(f"together they are more than the {LIMIT / 1e6:.1f} MB that travel")


def libraries_of(names: list[str], python: str) -> list[str]:
    """Return the requirements of distributions, as installed here, without hostcore's own and :data:`THERE`."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    found: dict[tuple[str, str], str] = {}
    wanted = [(name, "") for name in names]
    while wanted:
        name, extra = one = wanted.pop()
        if one in found or name in THERE:
            continue
        found[one] = distribution(name).version
        for requirement in map(Requirement, distribution(name).requires or ()):
            if requirement.marker is None or requirement.marker.evaluate(environment | {"extra": extra}):
                wanted += [(canonicalize_name(requirement.name), extra) for extra in ("", *requirement.extras)]
    return sorted({f"{name}=={version}" for (name, _), version in found.items() if name not in OWN})


def install(place: Path, folder: Path) -> None:
    """Make an environment that sees the running Python's libraries, and install what is missing there."""
    if not any(folder.glob("hostcore-*.whl")):
        raise SystemExit(f"{folder} holds no wheels of hostcore: make gpu-bundle, and carry it along")
    try:
        torch = distribution("torch").version
    except PackageNotFoundError:
        raise SystemExit(f"{sys.executable} has no torch: run this with the Python that has it") from None
    if place.exists() and not (place / "pyvenv.cfg").exists():
        raise SystemExit(f"{place} is there, and no virtual environment: name another folder")
    if place.exists():
        shutil.rmtree(place)
    venv.create(place, system_site_packages=True, symlinks=True)
    python = place / "bin" / "python"
    # Of a Python that is itself a virtual environment, `system_site_packages` shows the one below it alone.
    seen = [path for path in site.getsitepackages() if Path(path).is_dir()]
    own = place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (own / "machine.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in seen))
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index", "--find-links", folder]
    pip += ["--disable-pip-version-check", "--no-warn-conflicts", "--no-compile"]
    if subprocess.run([*pip, *REQUIRED, *OPTIONAL], capture_output=True, check=False).returncode:
        if subprocess.run([*pip, *REQUIRED], check=False).returncode:
            raise SystemExit("not installed: this Python needs what pip names above")
        for name in OPTIONAL:
            done = subprocess.run([*pip, name], capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"left out: {name}: {done.stderr.strip().splitlines()[-1]}")
    print(f"{python}: hostcore beside torch {torch}")


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--dir", type=Path, default=ROOT / "build" / "gpu", help="where the wheels lie")
    acts = ask.add_subparsers(dest="act", required=True)
    acts.add_parser("collect").add_argument("--python", default="3.12", help="the other machine's version")
    acts.add_parser("install").add_argument("place", type=Path, help="where the environment is made, anew each time")
    options = ask.parse_args()
    if options.act == "collect":
        collect(options.dir, options.python)
    else:
        install(options.place, options.dir)


if __name__ == "__main__":
    main()
