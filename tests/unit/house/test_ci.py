"""The script of CI."""

import re
import subprocess

from checkout import ROOT


def test_every_path_that_ci_runs_is_there() -> None:
    """pytest ends with "no tests ran" after all other suites otherwise."""
    script = (ROOT / ".ci/run").read_text()
    named = re.findall(r"(?:tests|docs|extensions|example_trainers)/[^\s\"'>;)]*", script)
    assert len(named) > 20
    expanded = subprocess.run(
        ["bash", "-O", "nullglob", "-c", f"printf '%s\\n' {' '.join(named)}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert [path for path in expanded if not (ROOT / path).exists()] == []
