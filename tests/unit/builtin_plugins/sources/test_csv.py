"""The syntax of CSV, and the types that its columns have."""

import csv
import gzip
import io
import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest
from opened_data import opened, refused, table

from hostcore_builtin_plugins.sources.csv_source import CsvSource

Open = Callable[..., Any]


@pytest.fixture
def open_csv(tmp_path: Path) -> Open:
    """``open_csv(b"a,b\\n1,2\\n", columns=["a"], delimiter=",")``: one file, or several by name."""

    def open_files(files: bytes | Mapping[str, bytes], **settings: Any) -> Any:
        folder = tmp_path / "data"
        folder.mkdir(exist_ok=True)
        for name, content in (files if isinstance(files, Mapping) else {"a.csv": files}).items():
            (folder / name).write_bytes(content)
        return opened(CsvSource, folder, **settings)

    return open_files


def rows(dataset: Any) -> list[dict[str, Any]]:
    return list(table(dataset).to_pylist())


VALUES = {
    "int64": ["0", "-7", "123456789012", "007"],
    "hexadecimal": ["0x1F", "0XA"],
    "float64": ["0.5", "-1e-3", "7"],
    "bool": ["true", "False"],
    "date32": ["2020-02-29", "9999-12-31"],
    "timestamp[s]": ["2020-02-29 01:02:03", "2021-01-01T00:00:00", "2020-02-29"],
    "timestamp[ns]": ["2020-02-29 01:02:03.5"],
    "timestamp[s, tz=UTC]": ["2020-02-29T01:02:03Z"],
    "time32[s]": ["10:20:30"],
    "string": ["word", "a,b", 'say "hi"', "two\nlines", "zwei\r\nZeilen", "größer", "1e", " x"],
}


def random_column(dice: random.Random, rows: int) -> list[str]:
    kinds = dice.sample(list(VALUES), dice.choice([1, 1, 1, 2]))
    pool = [value for kind in kinds for value in VALUES[kind]] + dice.choice([[], ["", "NA"]])
    return [dice.choice(pool) for _ in range(rows)]


@pytest.mark.parametrize("seed", range(10))
def test_rows_are_those_that_were_written_with_the_types_that_arrow_finds_in_one_look(
    open_csv: Open, seed: int
) -> None:
    dice = random.Random(seed)
    columns = [random_column(dice, dice.randint(1, 40)) for _ in range(dice.randint(2, 4))]
    rows = list(zip(*columns, strict=False))
    text = io.StringIO()
    line_end = dice.choice(["\n", "\r\n", "\r"])
    quoting = csv.QUOTE_ALL if line_end == "\r" else dice.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    writer = csv.writer(text, lineterminator=line_end, quoting=quoting)
    writer.writerows([[f"c{i}" for i in range(len(columns))], *rows])
    content = dice.choice([b"", b"\xef\xbb\xbf"]) + text.getvalue().encode()
    content = content.rstrip(b"\r\n") if dice.random() < 0.5 else content
    found = table(open_csv(content))
    convert = pa.csv.ConvertOptions(null_values=["", "NA"], true_values=["true"], false_values=["False"])
    parse = pa.csv.ParseOptions(newlines_in_values=True)
    assert found.equals(pa.csv.read_csv(pa.BufferReader(content), parse_options=parse, convert_options=convert))
    as_strings = table(open_csv(content, types=dict.fromkeys(found.column_names, "string")))
    assert [tuple(row.values()) for row in as_strings.to_pylist()] == rows, f"seed {seed}"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2"], pa.int64()),
        (["1", "2.5"], pa.float64()),
        (["1", "9223372036854775808"], pa.float64()),
        (["1", "0x1f"], pa.int64()),
        (["0.5", "0x1f"], pa.string()),
        (["1", "two"], pa.string()),
        (["1", "true"], pa.string()),
        (["true", "FALSE"], pa.bool_()),
        (["", "NA"], pa.null()),
        (["", "3"], pa.int64()),
        (["2020-01-01", "2020-01-02"], pa.date32()),
        (["2020-01-01", "2020-01-02 10:00"], pa.timestamp("s")),
        (["2020-01-01", "2020-01-02 10:00:00.25"], pa.timestamp("ns")),
        (["9999-12-31", "2020-01-02 10:00:00.25"], pa.string()),
        (["2020-01-01 10:00", "2020-01-01T10:00:00Z"], pa.string()),
        (["2020-01-01", "7"], pa.string()),
        (["10:20", "23:59:59"], pa.time32("s")),
        (["10:20", "24:00"], pa.string()),
        ([" 7 ", "8"], pa.int64()),
    ],
)
def test_a_column_has_the_narrowest_type_that_fits_all_its_values(
    open_csv: Open, values: list[str], kind: pa.DataType
) -> None:
    for order in (values, values[::-1]):
        lines = [b"n,c", *(f"0,{value}".encode() for value in order)]
        assert open_csv(b"\n".join(lines)).schema.field("c").type == kind


@pytest.mark.parametrize(
    ("row", "what"), [(b"7", "has 1 field, not 2"), (b"7,8,", "has 3 fields, not 2"), (b'"7,8"', "has 1 field, not 2")]
)
def test_a_row_of_another_length_is_refused(open_csv: Open, row: bytes, what: str) -> None:
    found = refused(lambda: open_csv(b"a,b\n" + b"1,2\n\n" * 30 + row + b"\n1,2\n"))
    assert found.message.endswith(f"a.csv, line 62: the row {what}")


def test_empty_lines_are_no_rows(open_csv: Open) -> None:
    assert rows(open_csv(b"\r\n\na,b\r\n\r\n1,2\r\n\n\n3,4\n\n")) == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]


def test_files_without_a_header_have_the_columns_that_the_job_names(open_csv: Open) -> None:
    assert rows(open_csv(b"1,2\n3,4", column_names=("p", "q"))) == [{"p": 1, "q": 2}, {"p": 3, "q": 4}]


def test_lines_before_the_rows_can_be_passed_over(open_csv: Open) -> None:
    content = b'# a "comment\n# more\na,a\n1,2\n'
    assert rows(open_csv(content, skip_lines=3, column_names=("p", "q"))) == [{"p": 1, "q": 2}]
    assert "several columns called 'a'" in refused(lambda: open_csv(content, skip_lines=2)).message
    refused(lambda: open_csv(content, skip_lines=9), "has no rows")


def test_delimiter_and_quote_can_be_others(open_csv: Open) -> None:
    assert rows(open_csv(b"a;b\n1;'x;'''\n", delimiter=";", quote="'")) == [{"a": 1, "b": "x;'"}]
    assert rows(open_csv(b'a\tb\n1\t5" pipe\n', delimiter="\t", quote="")) == [{"a": 1, "b": '5" pipe'}]


def test_nulls_are_what_the_job_says(open_csv: Open) -> None:
    content = b"a,b\n1,?\n?,\n"
    dataset = open_csv(content, null_values=("?",), allow_nulls=True)
    assert dataset.allow_nulls
    assert table(dataset).to_pylist() == [{"a": 1, "b": "?"}, {"a": None, "b": ""}]
    dataset = open_csv(content, null_values=("?",), strings_can_be_null=True)
    assert table(dataset).to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": ""}]


def test_not_a_number_is_a_number_where_it_does_not_mean_null(open_csv: Open) -> None:
    assert table(open_csv(b"a,b\nnan,1\n2,1\n")).column("a").to_pylist() == [None, 2]
    first, second = table(open_csv(b"a,b\nnan,1\n2,1\n", null_values=("",))).column("a").to_pylist()
    assert math.isnan(first)
    assert second == 2


@pytest.mark.parametrize(
    ("content", "says", "hints"),
    [
        (b"a,a\n1,2\n", "line 1: the header has several columns called 'a'", "rename"),
        (b'a,b\n1,2\n1,"x\n1,2\n1,2\n', 'line 3: has a " that is never closed', "truncated"),
        (b"a,b\n1,2\n1,\xe4\n", "line 3: byte 3 of the line (0xe4) is not UTF-8", "iconv"),
        (b"a,\xe4\n1,2\n", "line 1: byte 3 of the line (0xe4) is not UTF-8", "iconv"),
        ("a,b\n1,2\n".encode("utf-16"), "is UTF-16, not UTF-8", "iconv"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), "is not a CSV file", ".gz"),
    ],
)
def test_text_that_is_no_csv_is_refused(open_csv: Open, content: bytes, says: str, hints: str) -> None:
    found = refused(lambda: open_csv(content))
    assert says in found.message
    assert hints in (found.hint or "")


def test_a_null_character_is_a_letter_like_others(open_csv: Open) -> None:
    assert table(open_csv(b"a,b\n1,x\0y\n"))["b"].to_pylist() == ["x\0y"]


@pytest.mark.parametrize(
    ("content", "says", "settings"),
    [
        (b'a,b\n1,2\n1,5" pipe\n', 'line 3: has a " within a field that does not begin with one', {}),
        (b'a,b\n1,2\n1, "x"\n', 'line 3: has a " within a field that does not begin with one', {}),
        # The number of quotes is even.
        (b'a,b\r\n1,5" pipe\r\n2,"open\r\n3,x\r\n', 'line 2: has a " within a field that', {}),
        (
            b'id,text\n1,"hello\n2,"world"\n3,"foo"\n',
            'line 3: has a " within a field in quotes, where it is doubled',
            {},
        ),
        (b'it is 5" long\n\na,b\n1,"x" y\n', 'line 4: has a " within a field in quotes', {"skip_lines": 2}),
    ],
)
def test_a_stray_quote_is_an_error_at_its_line(
    open_csv: Open, content: bytes, says: str, settings: dict[str, Any]
) -> None:
    found = refused(lambda: open_csv(content, **settings))
    assert says in found.message
    assert '"quote": ""' in str(found.hint)
    assert table(open_csv(content, quote="", **settings)).num_rows > 0


def test_quotes_are_read_as_python_reads_them_wherever_blocks_end(open_csv: Open) -> None:
    text = b'\xef\xbb\xbf"a",b\r\n"",""""\r\n"x""y","1,2\r\n3"\r\n"",\r\n"z",""\r\n'
    expected = list(csv.DictReader(io.StringIO(text.decode("utf-8-sig"), newline="")))
    assert rows(open_csv(text)) == expected


def test_a_line_end_of_two_characters_in_quotes_is_whole_where_a_block_ends(open_csv: Open) -> None:
    value = "x" * ((2 << 20) - len('a,b\r\n1,"') - 1) + "\r\ny"
    assert table(open_csv(f'a,b\r\n1,"{value}"\r\n'.encode()))["b"].to_pylist() == [value]


@pytest.mark.parametrize(
    ("content", "settings"),
    [
        (b"a," + b"b" * (3 << 20) + b"\n1,2\n", {}),
        (b"x" * (3 << 20) + b"\na\n1\n", {"skip_lines": 1}),
        ((b"# " + b"no" * 100 + b"\n") * 15_000 + b"a\n1\n", {"skip_lines": 15_000}),
        (b"\n" * ((2 << 20) + 9) + b"a\n1\n", {}),
    ],
)
def test_what_is_before_the_first_row_may_be_larger_than_a_block(
    open_csv: Open, content: bytes, settings: dict[str, Any]
) -> None:
    assert table(open_csv(content, **settings)).num_rows == 1


def test_texts_that_mean_null_are_texts_where_other_files_have_texts(open_csv: Open) -> None:
    files = {"1.csv": b"id,country,note\n1,NA,\n2,NA,\n", "2.csv": b"id,country,note\n3,DE,hello\n4,NA,\n"}
    assert [(row["country"], row["note"]) for row in rows(open_csv(files))] == [
        ("NA", ""),
        ("NA", ""),
        ("DE", "hello"),
        ("NA", ""),
    ]


def test_an_open_quote_in_a_skipped_line_is_nothing(open_csv: Open) -> None:
    refused(lambda: open_csv(b'h,i\n"', skip_lines=3), "has no rows")


def test_a_record_may_be_larger_than_the_blocks_that_are_parsed(open_csv: Open) -> None:
    long = b'"' + b"x\n" * (2 << 20) + b'"'
    found = rows(open_csv(b"a,b\n1,2\n2,x\n3," + long + b"\n4,y\n"))
    assert [(row["a"], len(row["b"])) for row in found] == [(1, 1), (2, 1), (3, 4 << 20), (4, 1)]
