"""Plugins that nobody asked for, with every fault: they break neither the list of plugins nor a job without them."""

from pathlib import Path
from typing import Any

import pytest

CRASHES = "import pathlib\npathlib.Path({mark!r}).touch()\nraise RuntimeError('never import me')\n"
GROUPS = {
    "hostcore.trainers": "trainer",
    "hostcore.data_sources": "source",
    "hostcore.callbacks": "callback",
    "hostcore.reporters": "reporter",
    "hostcore.launchers": "launcher",
}


@pytest.fixture
def mark(site: Any, tmp_path: Path) -> Path:
    """A file that the import of any of the neighbours would make."""
    mark = tmp_path / "imported"
    crashes = CRASHES.format(mark=str(mark))
    site.install(
        "crashes",
        modules={"crashes.py": crashes},
        entry_points={group: {f"crashing-{name}": "crashes:Thing"} for group, name in GROUPS.items()},
    )
    site.install(
        "ghosts",
        modules={},
        entry_points={"hostcore.trainers": {"ghost": "no_such_module:Thing", "Bad Name": "x:Y", "odd": "not-a-path"}},
    )
    site.install("strangers", modules={}, entry_points={"hostcore.trainrs": {"lost": "x:Y"}})
    site.install("garbage", modules={}, entry_points="= no group\n\x00")
    site.install("empty", modules={}, entry_points={"hostcore.trainers": {"hollow": "x:Y"}})
    (site.path / "empty-1.0.dist-info/METADATA").write_text("")
    # Names of the host's own, which jobs use without naming them.
    site.install(
        "usurpers",
        modules={"usurpers.py": crashes},
        entry_points={
            "hostcore.data_sources": {"parquet": "usurpers:Thing", "mock": "usurpers:Thing"},
            "hostcore.reporters": {"terminal": "usurpers:Thing", "jsonl": "usurpers:Thing"},
            "hostcore.launchers": {"local": "usurpers:Thing"},
        },
    )
    return mark


def test_listing_imports_nothing_and_tells_what_is_broken(environment: Any, mark: Path) -> None:
    answer = environment.hostcore("plugins")
    assert answer.returncode == 0
    assert "Traceback" not in answer.stderr
    document = environment.json("plugins")
    names = {plugin["name"]: plugin for plugin in document["plugins"]}
    assert {f"crashing-{name}" for name in GROUPS.values()} <= set(names)
    assert {plugin["name"] for plugin in document["plugins"] if plugin["conflict"]} == {
        "parquet", "mock", "terminal", "jsonl", "local"
    }  # fmt: skip
    broken = {(one["distribution"], one["error"]) for one in document["broken"]}
    assert {distribution for distribution, _ in broken} == {"ghosts", "strangers", "garbage", "empty"}
    for distribution, part in [
        ("ghosts", "'Bad Name'"),
        ("ghosts", "module:symbol"),
        ("strangers", "hostcore.trainrs"),
        ("garbage", "entry_points.txt, line 1"),
        ("empty", "METADATA"),
    ]:
        assert any(part in error for owner, error in broken if owner == distribution), part
        assert any(part in line for line in answer.stderr.splitlines() if f"{distribution} is broken" in line), part
    assert "the reporter 'terminal' is provided by: hostcore-builtin-plugins" in answer.stderr
    assert not mark.exists()


def test_a_job_that_does_not_name_them_runs(environment: Any, halving: Any, mark: Path) -> None:
    del halving["terminal"]  # the default reporter is one of those that have a rival
    answer = environment.run(**halving)
    assert answer.returncode == 0, answer.stderr
    assert "succeeded" in answer.stdout
    assert not mark.exists()


def test_data_files_are_read_by_the_hosts_own_source_despite_a_rival(
    environment: Any, halving: Any, mark: Path
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": range(8)}), environment.folder / "data.parquet")
    del halving["mock_batches"]
    answer = environment.run(**halving, dataset={"parquet_paths": ["data.parquet"], "batch_size": 4})
    assert answer.returncode == 0, answer.stderr
    assert not mark.exists()


def test_showing_a_faulty_plugin_tells_its_fault_in_a_line(environment: Any, mark: Path) -> None:
    answer = environment.hostcore("plugins", "show", "crashing-trainer")
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr
    assert "RuntimeError: never import me" in answer.stderr
    assert "crashes.py:3" in answer.stderr
    assert "Traceback" in environment.hostcore("plugins", "show", "crashing-trainer", "-v").stderr
    assert mark.exists()


def test_a_name_that_has_a_rival_must_be_qualified_where_it_is_written(
    environment: Any, halving: Any, mark: Path
) -> None:
    answer = environment.run(**{**halving, "terminal": True, "reporters": ["terminal"]})
    assert answer.returncode == 2
    assert "at: /reporters/0" in answer.stderr
    assert "write hostcore-builtin-plugins/terminal or usurpers/terminal" in answer.stderr
    assert not mark.exists()
    assert (
        environment.run(**{**halving, "terminal": True, "reporters": ["hostcore-builtin-plugins/terminal"]}).returncode
        == 0
    )
