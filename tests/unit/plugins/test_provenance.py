"""The hash of what ran: by RECORD where pip wrote one, by the sources where they can change."""

import hashlib
import json
import sys

import pytest

from hostcore.plugins.installed import discover
from hostcore.plugins.provenance import other_code, provenance
from hostcore.plugins.resolve import resolve

TRAINERS = "hostcore.trainers"


@pytest.fixture
def installed(site_here):
    info = site_here.install(
        "my-dist",
        version="2.0",
        modules={"prov_pkg/__init__.py": "1 / 0", "prov_pkg/train.py": "class T: ...", "prov_pkg/data.txt": "x"},
        entry_points={TRAINERS: {"mine": "prov_pkg.train:T"}},
    )
    return info, lambda: provenance(resolve("mine", "trainer", discover()))


def test_a_regular_installation_is_known_by_its_record(installed):
    info, read = installed
    found = read()
    assert (found.kind, found.name, found.value) == ("trainer", "mine", "prov_pkg.train:T")
    assert (found.distribution, found.version) == ("my-dist", "2.0")
    assert found.sha256 == hashlib.sha256((info / "RECORD").read_bytes()).hexdigest()


def test_an_editable_installation_is_known_by_its_sources(installed, site_here):
    info, read = installed
    by_record = read().sha256
    (info / "direct_url.json").write_text(json.dumps({"url": "file:///x", "dir_info": {"editable": True}}))
    before = read().sha256
    assert before not in {None, by_record}
    (site_here.path / "prov_pkg/data.txt").write_text("y")
    assert read().sha256 == before
    (site_here.path / "prov_pkg/train.py").write_text("class T: pass")
    assert read().sha256 != before


def test_a_file_that_moves_changes_the_hash(installed, site_here):
    info, read = installed
    (info / "RECORD").unlink()
    before = read().sha256
    (site_here.path / "prov_pkg/train.py").rename(site_here.path / "prov_pkg/train2.py")
    assert read().sha256 not in {None, before}


def test_nothing_is_imported(installed):
    info, read = installed
    (info / "RECORD").unlink()
    read()
    assert not {name for name in sys.modules if name.startswith("prov_pkg")}


def test_an_import_path_is_known_by_the_module_in_the_job_folder(tmp_path):
    ref = resolve("prov_job_module:T", "trainer", discover([]))
    assert provenance(ref, job_dir=tmp_path).sha256 is None
    (tmp_path / "prov_job_module.py").write_text("1 / 0")
    first = provenance(ref, job_dir=tmp_path).sha256
    (tmp_path / "prov_job_module.py").write_text("2 / 0")
    assert first not in {None, provenance(ref, job_dir=tmp_path).sha256}


def test_where_nothing_can_be_had_there_is_no_hash():
    assert provenance(resolve("sys:path", "trainer", discover([]))).sha256 is None


@pytest.fixture
def both(site_here, monkeypatch):
    """``both("alpha")``: the trainer of a distribution; beta is installed over alpha, and nothing else is."""
    others = [folder for folder in sys.path if "site-packages" not in folder]  # to search all of those takes a second
    monkeypatch.setattr(sys, "path", others)
    for name, source in (("alpha", "A = 1"), ("beta", "B = 1")):
        modules = {"prov_same/__init__.py": "", "prov_same/train.py": source}
        entry_points = {TRAINERS: {name: "prov_same.train:T"}}
        site_here.install(f"my-{name}", modules=modules, entry_points=entry_points)
    return lambda name: resolve(name, "trainer", discover())


def test_code_of_another_distribution_is_told_with_the_file_and_both_names_and_hashed_as_what_it_is(both, site_here):
    told = other_code(both("alpha"))
    assert "the trainer alpha (my-alpha 1.0" in told
    assert f"{site_here.path}/prov_same/train.py is not the file that my-alpha has installed" in told
    assert "it is that of my-beta 1.0" in told
    assert other_code(both("beta")) is None
    before = provenance(both("alpha")).sha256
    assert before != hashlib.sha256((site_here.path / "my_alpha-1.0.dist-info/RECORD").read_bytes()).hexdigest()
    (site_here.path / "prov_same/train.py").write_text("C = 1")
    assert provenance(both("alpha")).sha256 != before
    assert "it was changed since" in other_code(both("beta"))


@pytest.mark.parametrize("metadata", ["RECORD", "editable"])
def test_code_of_another_distribution_cannot_be_told_where_the_files_are_not_recorded(both, site_here, metadata):
    info = site_here.path / "my_alpha-1.0.dist-info"
    if metadata == "RECORD":
        (info / "RECORD").unlink()
    else:
        (info / "direct_url.json").write_text(json.dumps({"url": "file:///x", "dir_info": {"editable": True}}))
    assert other_code(both("alpha")) is None


def test_code_at_an_earlier_place_of_the_path_is_told(both, site_here, tmp_path, monkeypatch):
    site_here.install("my-own", modules={"prov_hidden.py": "A = 1"}, entry_points={TRAINERS: {"own": "prov_hidden:T"}})
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier/prov_hidden.py").write_text("A = 1")
    monkeypatch.syspath_prepend(str(tmp_path / "earlier"))
    told = other_code(both("own"))
    assert f"{tmp_path}/earlier/prov_hidden.py is not the file that my-own has installed" in told
