"""What the README and the installation page show to a newcomer."""

import json
import re
from pathlib import Path

import pytest
from checkout import ROOT
from fork_server import ran

README = (ROOT / "README.md").read_text(encoding="utf-8")
#: What installs hostcore from a clone, in every page that says how.
INSTALL = "pip install -c constraints.txt ./hookspecs ./toolkit ./builtin_plugins ."


def pages() -> list[Path]:
    built = ROOT / "docs/_build"
    others = [page for folder in ("extensions", "example_*") for page in ROOT.glob(f"{folder}/*/README.md")]
    return [ROOT / "README.md", *others, *(page for page in (ROOT / "docs").rglob("*.md") if built not in page.parents)]


@pytest.mark.parametrize("page", ["README.md", "docs/install.md", "docs/tutorial.md"])
def test_a_page_for_newcomers_installs_from_the_clone(page: str) -> None:
    assert INSTALL in (ROOT / page).read_text(encoding="utf-8")
    for part in INSTALL.split()[3:]:
        assert (ROOT / part).exists(), part


def test_no_page_installs_hostcore_from_the_package_index() -> None:
    commands = re.compile(
        r"^\s*(?:\$ )?pip install (?:.* )?'?hostcore(?:-hookspecs|-toolkit|-builtin-plugins)?'?(?: |$)"
        r"|pip install [^`\n]*hostcore\[",
        re.MULTILINE,
    )
    assert commands.search("$ pip install hostcore")
    assert commands.search("`pip install 'hostcore[mlflow]'` installs it")
    found = [str(page.relative_to(ROOT)) for page in pages() if commands.search(page.read_text(encoding="utf-8"))]
    assert not found


def test_every_link_of_the_readme_leads_to_a_file() -> None:
    prose = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose)
    assert len(links) > 20
    assert not [link for link in links if "://" not in link and not (ROOT / link).exists()]


def test_the_trainer_of_the_readme_learns_its_line_with_the_callbacks_that_need_its_optimizer(tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    job = re.search(r"```json\n(.*?)```", README, re.DOTALL)
    assert code
    assert job
    (tmp_path / "line.py").write_text(code[1])
    (tmp_path / "job.json").write_text(job[1])
    callbacks = 'callbacks=["lr-monitor", {"use": "grad-clip", "max_norm": 100.0}]'
    answer = ran(["run", "job.json", "--json", "--set", callbacks], cwd=tmp_path, text=True)
    assert answer.returncode == 0, answer.stderr
    result = json.loads(answer.stdout)
    assert result["status"] == "succeeded"
    assert result["metrics"]["train/loss"] < 0.2
    assert result["metrics"]["train/lr"] == 0.01
