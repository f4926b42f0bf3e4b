"""Discovery reads metadata, imports nothing, and lets nothing broken stand in the way."""

import importlib.metadata
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

from hostcore.plugins.installed import discover

TRAINERS = "hostcore.trainers"


def test_a_plugin_is_found_by_its_entry_point_and_not_imported(site_here):
    site_here.install(
        "my-dist", version="2.1", modules={"bomb.py": "1 / 0"}, entry_points={TRAINERS: {"mine": "bomb:T"}}
    )
    (ref,) = [ref for ref in discover().refs if ref.name == "mine"]
    assert (ref.kind, ref.value, ref.dist, ref.version) == ("trainer", "bomb:T", "my-dist", "2.1")
    assert "bomb" not in sys.modules


def test_what_runs_code_is_known_by_its_distribution_s_declaration_without_an_import(site):
    declared = {"hostcore.runs_code": {"any-name": "m:T [gpu]"}}
    site.install(
        "my-dist", modules={"m.py": "1 / 0"}, entry_points={TRAINERS: {"a": "m:T", "b": "m:Other"}, **declared}
    )
    site.install("other-dist", modules={}, entry_points={TRAINERS: {"c": "m:T"}})
    assert {ref.name: ref.runs_code for ref in discover([str(site.path)]).refs} == {"a": True, "b": False, "c": False}


def test_a_declaration_of_what_is_no_plugin_of_the_distribution_is_broken(site):
    site.install("my-dist", modules={}, entry_points={TRAINERS: {"a": "m:T"}, "hostcore.runs_code": {"a": "m:Typo"}})
    found = discover([str(site.path)])
    assert [ref.name for ref in found.refs] == ["a"]
    (broken,) = found.broken
    assert "a = 'm:Typo' in hostcore.runs_code is no plugin of this distribution" in broken.error


@pytest.mark.parametrize("kind", [pathlib.Path, os.fsencode])
def test_what_import_leaves_out_of_the_path_hides_nothing(site_here, monkeypatch, tmp_path, kind):
    site_here.install("my-dist", modules={}, entry_points={TRAINERS: {"mine": "m:T"}})
    monkeypatch.setattr(sys, "path", [kind(tmp_path), *sys.path])
    assert [ref.dist for ref in discover().refs if ref.name == "mine"] == ["my-dist"]


def test_uninstalled_it_is_gone(site):
    info = site.install("my-dist", modules={}, entry_points={TRAINERS: {"mine": "m:T"}})
    assert discover([str(site.path)]).refs
    (info / "entry_points.txt").unlink()
    assert discover([str(site.path)]).refs == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mine = m:T", "line 1: expected a [group], found 'mine = m:T'"),
        ("[hostcore.trainers\nmine = m:T", "line 1: no closing bracket"),
        ("[console_scripts]\n\n# fine\nthis is not ini", "line 4: expected name = value, found 'this is not ini'"),
    ],
)
def test_a_malformed_entry_points_file_is_data_and_hides_no_other(site, text, says):
    info = site.install("bad-dist", modules={}, entry_points=text)
    site.install("good-dist", modules={}, entry_points={TRAINERS: {"mine": "m:T"}})
    found = discover([str(site.path)])
    assert [ref.dist for ref in found.refs] == ["good-dist"]
    (broken,) = found.broken
    assert (broken.distribution, broken.path) == ("bad_dist", str(info))
    assert says in broken.error


@pytest.mark.parametrize("says", ["UnicodeDecodeError", "IsADirectoryError"])
def test_an_entry_points_file_that_cannot_be_read_is_broken(site, says):
    file = site.install("bad-dist", modules={}, entry_points={}) / "entry_points.txt"
    if says == "IsADirectoryError":
        file.unlink()
        file.mkdir()
    else:
        file.write_bytes(b"[hostcore.trainers]\nm\xff = m:T\n")
    (broken,) = discover([str(site.path)]).broken
    assert says in broken.error


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        (None, "METADATA is missing"),
        ("", "METADATA is missing or empty"),
        ("Name: x\n", "no Version"),
        ("\n", "no Name"),
    ],
)
def test_a_plugin_without_usable_metadata_is_broken(site, metadata, says):
    info = site.install("bad-dist", modules={}, entry_points={TRAINERS: {"mine": "m:T"}})
    if metadata is None:
        (info / "METADATA").unlink()
    else:
        (info / "METADATA").write_text(metadata)
    found = discover([str(site.path)])
    assert found.refs == ()
    assert says in found.broken[0].error


def test_metadata_of_a_distribution_without_plugins_is_not_even_read(site):
    info = site.install("other", modules={}, entry_points={"console_scripts": {"x": "m:main"}})
    (info / "METADATA").write_bytes(b"\xff\xff")
    assert discover([str(site.path)]).broken == ()


@pytest.mark.parametrize(
    ("entry_points", "says"),
    [
        *(({TRAINERS: {name: "m:T"}}, repr(name)) for name in ("Mine", "-mine", "my plugin", "a/b", "a:b", "ä")),
        *(({TRAINERS: {"mine": to}}, "module:symbol") for to in ("m", "m:", ":T", "my-module:T", "m:T()", "m.py:T:U")),
        ({"hostcore.trainer": {"mine": "m:T"}}, "'hostcore.trainer'"),
        ({"hostcore.trainer": {"mine": "m:T"}}, "hostcore.trainers"),
    ],
)
def test_an_invalid_name_value_or_group_is_broken_and_its_neighbours_are_not(site, entry_points, says):
    mine = {group: {**entries, "good": "m:T"} for group, entries in entry_points.items()}
    site.install("my-dist", modules={}, entry_points={TRAINERS: {"good": "m:T"}, **mine})
    found = discover([str(site.path)])
    assert [ref.name for ref in found.refs] == ["good"]
    assert says in found.broken[0].error


def test_the_first_installation_on_the_path_wins_also_when_it_registers_nothing(site, tmp_path):
    first, second = type(site)(tmp_path / "first"), type(site)(tmp_path / "second")
    first.install("My.Dist", version="1.0", modules={}, entry_points={})
    second.install("my-dist", version="2.0", modules={}, entry_points={TRAINERS: {"mine": "m:T"}})
    assert discover([str(first.path), str(second.path)]).refs == ()
    assert [ref.version for ref in discover([str(second.path), str(first.path)]).refs] == ["2.0"]


def test_the_remains_of_an_interrupted_uninstall_are_broken_not_a_conflict(site):
    info = site.install("my-dist", modules={}, entry_points={TRAINERS: {"mine": "m:T"}})
    info.rename(site.path / "~y_dist-1.0.dist-info")
    site.install("my-dist", modules={}, entry_points={TRAINERS: {"mine": "m:T"}})
    found = discover([str(site.path)])
    assert not found.conflicts
    assert "interrupted" in found.broken[0].error


@pytest.mark.parametrize("place", ["old_dist-0.9-py3.11.egg-info", "old_dist-0.9-py3.11.egg/EGG-INFO"])
def test_egg_info_and_an_unpacked_egg_are_found_too(tmp_path, place):
    info = tmp_path / place
    info.mkdir(parents=True)
    (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: old-dist\nVersion: 0.9\n")
    (info / "entry_points.txt").write_text("[hostcore.callbacks]\nold = m:T\n")
    (ref,) = discover([str(info.parent)]).refs
    assert ref.provenance == "old (old-dist 0.9)"


@pytest.mark.parametrize("inner", ["my_dist-1.0.dist-info", "EGG-INFO"])
def test_a_plugin_in_a_zip_file_is_found_too(tmp_path, inner):
    archive = tmp_path / "my_dist-1.0.egg"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(f"{inner}/PKG-INFO", "Metadata-Version: 2.1\nName: my-dist\nVersion: 1.0\n")
        file.writestr(f"{inner}/entry_points.txt", "[hostcore.callbacks]\nmine = m:T\n")
    (ref,) = discover([str(archive)]).refs
    assert ref.provenance == "mine (my-dist 1.0)"


def test_what_another_finder_finds_is_found_too(monkeypatch):
    class Remote(importlib.metadata.Distribution):
        def read_text(self, filename):
            return {
                "METADATA": "Metadata-Version: 2.1\nName: far-dist\nVersion: 3.0\n",
                "entry_points.txt": "[hostcore.callbacks]\nfar = m:T\n",
            }.get(filename)

        def locate_file(self, path):
            return path

    class Finder:
        def find_spec(self, *_):
            return None

        def find_distributions(self, _context):
            return [Remote()]

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert "far (far-dist 3.0)" in {ref.provenance for ref in discover().refs}


def test_two_distributions_with_one_name_are_a_conflict_of_that_kind_alone(site):
    for dist in ("dist-a", "dist-b"):
        site.install(dist, modules={}, entry_points={TRAINERS: {"x": "m:T"}})
    site.install("dist-c", modules={}, entry_points={"hostcore.callbacks": {"x": "m:T"}})
    conflicts = discover([str(site.path)]).conflicts
    assert {key: [ref.dist for ref in refs] for key, refs in conflicts.items()} == {
        ("trainer", "x"): ["dist-a", "dist-b"]
    }


def test_one_name_twice_in_one_distribution_is_a_conflict_unless_it_means_the_same(site):
    site.install("dist-a", modules={}, entry_points="[hostcore.trainers]\nx = m:T\nx = m:U\ny = m:T\ny = m:T\n")
    assert set(discover([str(site.path)]).conflicts) == {("trainer", "x")}


def test_a_finder_that_raises_is_data(site_here, monkeypatch):
    class Finder:
        def find_spec(self, *_):
            return None

        def find_distributions(self, _context):
            raise OSError("network path is gone")

    site_here.install("good-dist", modules={}, entry_points={TRAINERS: {"mine": "m:T"}})
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    found = discover()
    assert "mine" in {ref.name for ref in found.refs}
    assert "network path is gone" in found.broken[-1].error


def test_discovery_loads_nothing_heavy():
    heavy = "{'torch', 'pyarrow', 'numpy', 'cattrs', 'packaging', 'pydantic', 'rich', 'matplotlib'}"
    code = f"import sys, hostcore.plugins.installed as d; d.discover(); print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
