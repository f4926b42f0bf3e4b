"""What the prepared digits hold, and how the files come into being."""

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from digits.prepare_data import main, prepare

FILES = ("train.parquet", "validation.parquet", "test.parquet")


def test_every_image_of_the_package_is_in_one_file_with_its_label(prepared: Path) -> None:
    from sklearn.datasets import load_digits  # a second, which other tests need not wait for

    pixels, labels = load_digits(return_X_y=True)
    images = {(bytes(image), label) for image, label in zip(pixels.astype("uint8"), labels.tolist(), strict=True)}
    found = [
        (bytes(image), label)
        for name in FILES
        for image, label in zip(*pq.read_table(prepared / name).to_pydict().values(), strict=True)
    ]
    assert len(found) == len(images) == 1797
    assert set(found) == images


def test_every_file_has_its_share_of_each_digit(prepared: Path) -> None:
    counts = {name: np.bincount(pq.read_table(prepared / name)["label"].to_numpy()) for name in FILES}
    together = sum(counts.values())
    for name, share in zip(FILES, (0.6, 0.2, 0.2), strict=True):
        assert np.abs(counts[name] - share * together).max() <= 2


@pytest.mark.parametrize("content", [b"", b"PAR1 and then nothing"])
def test_only_a_file_that_is_not_what_it_should_be_is_written_again(
    tmp_path: Path, prepared: Path, content: bytes
) -> None:
    (tmp_path / "test.parquet").write_bytes(content)
    prepare(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in prepared.iterdir()
    }
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert set(before) == set(FILES)
    prepare(tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_without_scikit_learn_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert main(["--out", str(tmp_path / "out")]) == 2
    assert "hint: Run: pip install scikit-learn" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("in the way")
    monkeypatch.undo()
    assert main(["--out", str(tmp_path / "file")]) == 2
    assert "cannot write" in capsys.readouterr().err
