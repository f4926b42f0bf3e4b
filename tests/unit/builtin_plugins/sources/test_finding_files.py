from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from hostcore_builtin_plugins.sources.data_files import find_files
from hostcore_hookspecs import InvalidData


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "b.parquet",
        "a.parquet",
        "sub/c.parquet",
        "sub/notes.txt",
        ".hidden/d.parquet",
        "_temporary/e.parquet",
        ".f.parquet",
        "_g.parquet",
    ):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return tmp_path / "data"


def find(*paths: Path | str) -> list[str]:
    found = find_files(
        [str(path) for path in paths], suffixes=(".parquet",), storage_options={}, pointer="/dataset/parquet_paths"
    )
    return [file.name for file in found]


def below(tree: Path, *names: str) -> list[str]:
    return [str(tree / name) for name in names]


def error_of(*paths: Path | str) -> InvalidData:
    with pytest.raises(InvalidData) as raised:
        find(*paths)
    return raised.value


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", ["a.parquet", "b.parquet", "sub/c.parquet"]),
        ("a.parquet", ["a.parquet"]),
        ("*.parquet", ["a.parquet", "b.parquet"]),
        ("sub/*.txt", ["sub/notes.txt"]),
        ("_*.parquet", ["_g.parquet"]),
        ("**/*.parquet", ["a.parquet", "b.parquet", "sub/c.parquet"]),
        ("**", ["a.parquet", "b.parquet", "sub/c.parquet", "sub/notes.txt"]),
        ("su?", ["sub/c.parquet"]),
    ],
)
def test_folders_and_globs_give_files_at_any_depth_in_sorted_order_without_hidden_names(
    tree: Path, pattern: str, names: list[str]
) -> None:
    assert find(f"{tree}/{pattern}") == below(tree, *names)


def test_the_order_of_the_job_holds_between_entries(tree: Path) -> None:
    assert find(tree / "sub", tree / "b.parquet", tree / "a.parquet") == below(
        tree, "sub/c.parquet", "b.parquet", "a.parquet"
    )


def test_a_file_whose_name_looks_like_a_glob_is_a_file(tree: Path) -> None:
    (tree / "x[1].parquet").write_bytes(b"x")
    assert find(tree / "x[1].parquet") == below(tree, "x[1].parquet")


def test_files_in_linked_folders_are_found_once(tree: Path) -> None:
    (tree / "sub" / "again").symlink_to(tree)
    for data in (tree, f"{tree}/**", f"{tree}/**/*.parquet"):
        assert [name for name in find(data) if name.endswith(".parquet")] == below(
            tree, "a.parquet", "b.parquet", "sub/c.parquet"
        )


@pytest.mark.parametrize("make", [Path.symlink_to, Path.hardlink_to])
@pytest.mark.parametrize("name", ["0.parquet", "sub/z.parquet"])
def test_a_second_name_of_a_file_in_a_folder_is_refused_with_both(tree: Path, name: str, make: Callable) -> None:
    make(tree / name, tree / "a.parquet")
    for data in (tree, f"{tree}/**", f"{tree}/**/*.parquet"):
        message = error_of(data).message
        assert f"named twice, by {data}: " in message
        assert {f"{tree}/a.parquet", f"{tree}/{name}"} <= set(message.replace(":", "").split())
    assert find(f"{tree}/b*") == below(tree, "b.parquet")


def test_a_link_to_a_file_that_is_not_named_itself_is_a_file(tree: Path) -> None:
    (tree / "links").mkdir()
    (tree / "links" / "h.parquet").symlink_to(tree / "a.parquet")
    assert find(tree / "links") == below(tree, "links/h.parquet")


def test_a_file_with_a_linked_and_a_real_path_has_the_real_one(tree: Path) -> None:
    (tree / "all").symlink_to("sub")
    assert find(tree) == below(tree, "a.parquet", "b.parquet", "sub/c.parquet")
    assert find(f"{tree}/*/c.parquet") == below(tree, "sub/c.parquet")
    assert find(f"{tree}/*/") == below(tree, "sub/c.parquet")
    assert find(f"{tree}/al*/c.parquet") == below(tree, "all/c.parquet")


@pytest.mark.parametrize("order", [("m", "k", "z"), ("z", "k", "m"), ("k", "z", "m")])
def test_a_folder_that_only_links_lead_to_has_the_first_of_their_names(tmp_path: Path, order: tuple[str, ...]) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "a.parquet").write_bytes(b"x")
    (tmp_path / "data").mkdir()
    for name in order:  # a folder lists its entries in another order on every file system
        (tmp_path / "data" / name).symlink_to(tmp_path / "store")
    for data in (tmp_path / "data", f"{tmp_path}/data/**/*.parquet", f"{tmp_path}/data/*"):
        assert find(data) == [f"{tmp_path}/data/k/a.parquet"]


def test_a_visible_link_leads_to_a_hidden_folder(tree: Path) -> None:
    (tree / "current").symlink_to(".hidden")
    for data in (tree, f"{tree}/**/*.parquet"):
        assert find(data) == below(tree, "a.parquet", "b.parquet", "current/d.parquet", "sub/c.parquet")


def test_links_to_folders_above_them_are_not_followed_in_all_combinations(tree: Path) -> None:
    for name in ("one", "two", "three"):
        (tree / "sub" / name).symlink_to(tree)
    assert find(f"{tree}/**/**/*.parquet") == below(tree, "a.parquet", "b.parquet", "sub/c.parquet")


def test_the_folder_that_a_pattern_starts_in_is_no_pattern(tmp_path: Path) -> None:
    for folder in ("exp1", "exp[1]", "a*", "ab"):
        (tmp_path / folder / "data").mkdir(parents=True)
        (tmp_path / folder / "data" / "a.parquet").write_bytes(b"x")
    for folder in ("exp[1]", "a*"):
        inside = tmp_path / folder
        for data in ("data/*.parquet", "data", "**/*.parquet", "data/a.parquet", "d*"):
            assert find(inside / data) == below(inside, "data/a.parquet")
            assert find(f"file://{inside}/{data}") == below(inside, "data/a.parquet")
        assert error_of(inside / "data" / "b.parquet").message == f"{inside}/data/b.parquet does not exist"
        assert error_of(inside / "data" / "*.csv").message == f"no file matches {inside}/data/*.csv"
    assert find(f"{tmp_path}/exp[12]/data") == below(tmp_path, "exp1/data/a.parquet")


def test_a_name_with_colons_is_a_name(tree: Path) -> None:
    (tree / "x::y").mkdir()
    (tree / "x::y" / "zip::a.parquet").write_bytes(b"x")
    for data in ("x::y", "x::y/zip::a.parquet", "x::?/*.parquet"):
        assert find(tree / data) == below(tree, "x::y/zip::a.parquet")


def test_hidden_folders_above_the_data_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / ".cache" / "a.parquet"
    path.parent.mkdir()
    path.write_bytes(b"x")
    assert find(path.parent) == [str(path)]


def test_a_file_named_twice_is_refused(tree: Path) -> None:
    error = error_of(tree / "a.parquet", tree)
    assert error.message == f"{tree}/a.parquet is named twice, the second time by {tree}"
    assert error.pointer == "/dataset/parquet_paths/1"


def test_a_second_name_of_a_file_is_refused_with_both(tree: Path) -> None:
    (tree / "link.parquet").symlink_to("a.parquet")
    (tree / "hard.parquet").hardlink_to(tree / "a.parquet")
    (tree / "linked").symlink_to("sub")
    for name in ("link.parquet", "hard.parquet", "sub/../a.parquet"):
        error = error_of(tree / "a.parquet", f"{tree}/{name}")
        assert error.message == (
            f"{tree}/a.parquet is named twice, the second time by {tree}/{name}: {tree}/{name} is the same file"
        )
        assert error.pointer == "/dataset/parquet_paths/1"
    assert f"{tree}/linked/c.parquet is the same file" in error_of(tree / "sub", tree / "linked").message


NO_PARQUET = "the folder {tree}/notes has no file that ends in .parquet"


@pytest.mark.parametrize(
    ("path", "message", "hint"),
    [
        ("{tree}/sab/c.parquet", "{tree}/sab/c.parquet does not exist", "did you mean sub, in {tree}?"),
        ("{tree}/b.parqet", "{tree}/b.parqet does not exist", "did you mean b.parquet, in {tree}?"),
        ("{tree}/nowhere/at/all", "{tree}/nowhere/at/all does not exist", "there is no nowhere in {tree}"),
        ("{tree}/sub/zzz", "{tree}/sub/zzz does not exist", "{tree}/sub has c.parquet, notes.txt"),
        ("{tree}/sub/*.csv", "no file matches {tree}/sub/*.csv", "{tree}/sub has c.parquet, notes.txt"),
        ("{tree}/notes", NO_PARQUET, "a.txt"),
        ("{tree}/z", "there is nothing at {tree}/z/z.parquet", ""),
        ("/dev/null", "/dev/null is not a regular file", ""),
        ("/data/\0.parquet", "", ""),
    ],
)
def test_what_names_no_file_is_refused_with_what_is_there(tree: Path, path: str, message: str, hint: str) -> None:
    for folder in ("notes", "z"):
        (tree / folder).mkdir()
    (tree / "notes" / "a.txt").touch()
    (tree / "z" / "z.parquet").symlink_to(tree / "gone")
    error = error_of(tree / "a.parquet", path.format(tree=tree))
    assert message.format(tree=tree) in error.message
    assert hint.format(tree=tree) in (error.hint or "")
    assert error.pointer == ("/dataset/parquet_paths/1" if path != "/dev/null" else None)


def test_a_missing_object_is_refused_with_the_names_close_to_it() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/bucket/trian.parquet", b"x")
    try:
        error = error_of("memory://bucket/train.parquet")
        assert error.message == "memory://bucket/train.parquet does not exist"
        assert "did you mean trian.parquet" in (error.hint or "")
        assert error_of("memory://bucket/*.csv").message == "no file matches memory://bucket/*.csv"
    finally:
        memory.rm("/bucket", recursive=True)
