"""What the prepared text holds, and how the files come into being."""

import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from char_lm.prepare_data import ROW_BYTES, language_reference, main, prepare

FILES = ("train.parquet", "validation.parquet", "test.parquet")


def tokens(path: Path) -> np.ndarray:
    """(rows, 257)."""
    return np.array(pq.read_table(path)["tokens"].to_pylist(), dtype=np.uint8)


def text_of(path: Path) -> bytes:
    rows = tokens(path)
    return bytes(rows[:1, 0].tolist() + rows[:, 1:].ravel().tolist())


def test_the_files_are_the_text_in_its_order_but_for_what_does_not_fill_a_row(tmp_path: Path) -> None:
    text = bytes(np.random.default_rng(0).integers(0, 256, 20_000, dtype=np.uint8))
    (tmp_path / "text").write_bytes(text)
    prepare(tmp_path / "out", tmp_path / "text")
    for name, start, end in zip(FILES, (0, 18_000, 19_000), (18_000, 19_000, 20_000), strict=True):
        part = text_of(tmp_path / "out" / name)
        assert text[start:end].startswith(part)
        assert end - start - len(part) < ROW_BYTES


def test_every_byte_but_the_first_is_predicted_once(prepared: Path) -> None:
    rows = tokens(prepared / "train.parquet")
    assert rows.shape[1] == ROW_BYTES + 1
    assert (rows[1:, 0] == rows[:-1, -1]).all()


def test_the_reference_has_no_paragraph_twice_so_the_test_asks_for_nothing_learned_by_heart() -> None:
    paragraphs = Counter(" ".join(paragraph.split()) for paragraph in language_reference().split("\n\n"))
    assert paragraphs.most_common(1)[0][1] == 1
    assert len(paragraphs) > 1000


def test_the_printed_cost_by_frequency_is_that_of_the_files(
    tmp_path: Path, prepared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path)]) == 0
    train, test = (tokens(prepared / name)[:, 1:].ravel().tolist() for name in ("train.parquet", "test.parquet"))
    counts = Counter(train)
    costs = [-math.log2((counts[byte] + 1) / (len(train) + 256)) for byte in test]
    assert f"cost {sum(costs) / len(costs):.2f} bits each" in capsys.readouterr().out


def test_files_that_are_there_are_left_as_they_are_unless_they_are_of_another_text(
    tmp_path: Path, prepared: Path
) -> None:
    (tmp_path / "text").write_bytes(b"another text\n" * 1000)
    prepare(tmp_path / "out", tmp_path / "text")
    prepare(tmp_path / "out")
    for name in FILES:
        assert (tmp_path / "out" / name).read_bytes() == (prepared / name).read_bytes()
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert set(before) == set(FILES)
    prepare(tmp_path / "out")
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize("text", ["absent", "short", None])
def test_a_text_that_cannot_be_had_or_is_too_short_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    (tmp_path / "short").write_text("short" * 1000)
    given = [] if text is None else ["--text", str(tmp_path / text)]
    assert main(["--out", str(tmp_path / "out"), *given]) == 2
    words = {
        "absent": f"error: {tmp_path / 'absent'}: cannot read the text",
        "short": "the text has 5,000 bytes: too few",
        None: "--text",  # this Python is without the reference
    }
    assert words[text] in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
