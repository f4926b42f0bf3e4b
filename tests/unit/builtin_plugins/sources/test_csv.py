import bz2
import csv
import gzip
import io
import math
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

from hostcore_builtin_plugins.sources.csv_source import CsvSource
from hostcore_builtin_plugins.sources.file_dataset import FileDataset
from hostcore_hookspecs import DataContext, InvalidData, InvalidSettings

Open = Callable[..., FileDataset]


@pytest.fixture
def open_csv(tmp_path: Path) -> Open:
    """``open_csv(b"a,b\\n1,2\\n", columns=["a"], delimiter=",")``: one file, or several by name."""

    def open_files(files: bytes | Mapping[str, bytes], *, columns: Sequence[str] = (), **settings: Any) -> FileDataset:
        folder = tmp_path / "data"
        folder.mkdir(exist_ok=True)
        for name, content in (files if isinstance(files, Mapping) else {"a.csv": files}).items():
            (folder / name).write_bytes(content)
        source = CsvSource(settings=CsvSource.Settings(paths=str(folder), **settings))
        return source.open_dataset({"columns": list(columns)}, DataContext())

    return open_files


def table(dataset: FileDataset) -> pa.Table:
    """All rows, read backwards so that every shard is sought; each shard has the rows that it promised."""
    parts = []
    for shard in reversed(dataset.shards()):
        batches = list(dataset.read_shard(shard, None, 0))
        assert sum(batch.num_rows for batch in batches) == shard.num_rows
        parts[:0] = batches
    return pa.Table.from_batches(parts, dataset.schema)


def error(open_csv: Open, *arguments: Any, **settings: Any) -> InvalidData:
    with pytest.raises(InvalidData) as raised:
        open_csv(*arguments, **settings)
    assert raised.value.hint
    return raised.value


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


@pytest.mark.parametrize("seed", range(25))
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


def test_a_large_file_has_one_type_for_all_its_blocks_and_many_shards(open_csv: Open) -> None:
    """The values of each column but the first change in the last block, after 8 MiB."""
    rows, filler = 100_000, b"word " * 16
    lines = [b"n,number,word,date,code,text"]
    lines += (b'%d,%d,%d,2020-01-01,,"%s\n"' % (n, n, n, filler) for n in range(rows - 1))
    lines.append(b'%d,0.5,seven,2020-01-01 10:00,x,"y"' % (rows - 1))
    dataset = open_csv(b"\n".join(lines))
    assert dataset.schema.types == [
        *(pa.int64(), pa.float64(), pa.string(), pa.timestamp("s"), pa.string(), pa.string())
    ]
    assert len(dataset.shards()) > 3
    found = table(dataset)
    assert found["n"].to_pylist() == list(range(rows))
    assert found["number"].to_pylist() == [*range(rows - 1), 0.5]
    assert found["word"].to_pylist() == [*map(str, range(rows - 1)), "seven"]
    shard = dataset.shards()[2]
    first = sum(one.num_rows for one in dataset.shards()[:2])
    for offset in (0, 137, shard.num_rows - 1, shard.num_rows):
        batches = list(dataset.read_shard(shard, ["n"], offset))
        assert [n for one in batches for n in one["n"].to_pylist()] == [*range(first + offset, first + shard.num_rows)]


def test_declared_types_are_used(open_csv: Open) -> None:
    types = {"a": "float32", "b": "string", "c": "timestamp[ms]", "d": "int8", "e": "bool"}
    dataset = open_csv(b"a,b,c,d,e\n1,007,2020-01-01,-5,true\n", types=types)
    assert [str(kind) for kind in dataset.schema.types] == ["float", "string", "timestamp[ms]", "int8", "bool"]
    assert table(dataset).to_pylist() == [{"a": 1.0, "b": "007", "c": datetime(2020, 1, 1), "d": -5, "e": True}]


def test_the_first_value_that_does_not_fit_is_named(open_csv: Open) -> None:
    for before in (50, 300_000):  # the second one in a later block
        content = b"a,b\n" + b'1,"x\ny"\n' * before + b"300,x\n" + b"1,x\n" * 50 + b"400,x\n"
        found = error(open_csv, content, types={"a": "int8"})
        assert found.message.endswith(f"a.csv, line {2 * before + 2}: column 'a' has '300', which is no int8")
        assert found.file
        assert found.file.endswith("a.csv")


@pytest.mark.parametrize(
    ("row", "what"), [(b"7", "has 1 field, not 2"), (b"7,8,", "has 3 fields, not 2"), (b'"7,8"', "has 1 field, not 2")]
)
def test_a_row_of_another_length_is_refused(open_csv: Open, row: bytes, what: str) -> None:
    found = error(open_csv, b"a,b\n" + b"1,2\n\n" * 30 + row + b"\n1,2\n")
    assert found.message.endswith(f"a.csv, line 62: the row {what}")


@pytest.mark.parametrize("content", [b"", b"\n\r\n", b"a,b\n", b"\xef\xbb\xbf"])
def test_files_without_rows_are_as_good_as_not_there(open_csv: Open, content: bytes) -> None:
    assert table(open_csv({"a.csv": content, "b.csv": b"a,b\n1,2\n"})).to_pylist() == [{"a": 1, "b": 2}]
    with pytest.raises(InvalidData, match="has no rows"):
        open_csv({"a.csv": content, "b.csv": content})


def test_empty_lines_are_no_rows(open_csv: Open) -> None:
    assert table(open_csv(b"\r\n\na,b\r\n\r\n1,2\r\n\n\n3,4\n\n")).to_pylist() == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]


def test_a_byte_order_mark_is_no_part_of_the_first_name(open_csv: Open) -> None:
    assert open_csv(b"\xef\xbb\xbfa,b\n1,2\n").schema.names == ["a", "b"]


def test_files_without_a_header_have_the_columns_that_the_job_names(open_csv: Open) -> None:
    assert table(open_csv(b"1,2\n3,4", column_names=("p", "q"))).to_pylist() == [{"p": 1, "q": 2}, {"p": 3, "q": 4}]


def test_lines_before_the_rows_can_be_passed_over(open_csv: Open) -> None:
    content = b'# a "comment\n# more\na,a\n1,2\n'
    assert table(open_csv(content, skip_lines=3, column_names=("p", "q"))).to_pylist() == [{"p": 1, "q": 2}]
    assert "several columns called 'a'" in error(open_csv, content, skip_lines=2).message
    with pytest.raises(InvalidData, match="has no rows"):
        open_csv(content, skip_lines=9)


def test_delimiter_and_quote_can_be_others(open_csv: Open) -> None:
    assert table(open_csv(b"a;b\n1;'x;'''\n", delimiter=";", quote="'")).to_pylist() == [{"a": 1, "b": "x;'"}]
    assert table(open_csv(b'a\tb\n1\t5" pipe\n', delimiter="\t", quote="")).to_pylist() == [{"a": 1, "b": '5" pipe'}]


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
    found = error(open_csv, content)
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
    found = error(open_csv, content, **settings)
    assert says in found.message
    assert '"quote": ""' in str(found.hint)
    assert table(open_csv(content, quote="", **settings)).num_rows > 0


def test_quotes_are_read_as_python_reads_them_wherever_blocks_end(open_csv: Open) -> None:
    text = b'\xef\xbb\xbf"a",b\r\n"",""""\r\n"x""y","1,2\r\n3"\r\n"",\r\n"z",""\r\n'
    rows = list(csv.DictReader(io.StringIO(text.decode("utf-8-sig"), newline="")))
    assert table(open_csv(text)).to_pylist() == rows


def test_a_line_end_of_two_characters_in_quotes_is_whole_where_a_block_ends(open_csv: Open) -> None:
    value = "x" * ((2 << 20) - len('a,b\r\n1,"') - 1) + "\r\ny"
    assert table(open_csv(f'a,b\r\n1,"{value}"\r\n'.encode()))["b"].to_pylist() == [value]


@pytest.mark.parametrize(
    ("content", "settings"),
    [
        (b"a," + b"b" * (3 << 20) + b"\n1,2\n", {}),
        (b"x" * (3 << 20) + b"\na\n1\n", {"skip_lines": 1}),
        (b"# no\n" * 600_000 + b"a\n1\n", {"skip_lines": 600_000}),
        (b"\n" * (3 << 20) + b"a\n1\n", {}),
    ],
)
def test_what_is_before_the_first_row_may_be_larger_than_a_block(
    open_csv: Open, content: bytes, settings: dict[str, Any]
) -> None:
    assert table(open_csv(content, **settings)).num_rows == 1


def test_texts_that_mean_null_are_texts_where_other_files_have_texts(open_csv: Open) -> None:
    files = {"1.csv": b"id,country,note\n1,NA,\n2,NA,\n", "2.csv": b"id,country,note\n3,DE,hello\n4,NA,\n"}
    rows = table(open_csv(files)).to_pylist()
    assert [(row["country"], row["note"]) for row in rows] == [("NA", ""), ("NA", ""), ("DE", "hello"), ("NA", "")]


def test_an_open_quote_in_a_skipped_line_is_nothing(open_csv: Open) -> None:
    with pytest.raises(InvalidData, match="has no rows"):
        open_csv(b'h,i\n"', skip_lines=3)


def test_a_record_may_be_larger_than_the_blocks_that_are_parsed(open_csv: Open) -> None:
    long = b'"' + b"x\n" * (2 << 20) + b'"'
    rows = table(open_csv(b"a,b\n1,2\n2,x\n3," + long + b"\n4,y\n")).to_pylist()
    assert [(row["a"], len(row["b"])) for row in rows] == [(1, 1), (2, 1), (3, 4 << 20), (4, 1)]


def test_numbers_of_several_files_get_one_type(open_csv: Open) -> None:
    files = {"a.csv": b"x,y\n1,2\n", "b.csv": b"y,x\n2.5,3\n", "c.csv": b"x,y\n,4\n"}
    dataset = open_csv(files)
    assert dataset.schema == pa.schema([("x", pa.int64()), ("y", pa.float64())])
    assert [row["y"] for row in table(dataset).to_pylist()] == [2.0, 2.5, 4.0]


def test_a_type_of_a_column_that_is_not_there_is_refused(open_csv: Open) -> None:
    found = error(open_csv, b"label,b\n1,2\n", types={"lable": "int8"})
    assert found.pointer == "/dataset/types/lable"
    assert "did you mean 'label'?" in (found.hint or "")


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({"delimiter": ";;"}, "/delimiter"),
        ({"delimiter": "\n"}, "/delimiter"),
        ({"delimiter": ""}, "/delimiter"),
        ({"quote": "«"}, "/quote"),
        ({"quote": ","}, "/quote"),
        ({"column_names": ("a", "a")}, "/column_names/1"),
        ({"types": {"a/b": "int7"}}, "/types/a~1b"),
        ({"types": {"a": "list<int8>"}}, "/types/a"),
    ],
)
def test_settings_that_make_no_sense_are_refused(open_csv: Open, settings: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        open_csv(b"a,b\n1,2\n", **settings)
    assert raised.value.pointer == pointer


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: pa.compress(content, "zstd", asbytes=True),
}


@pytest.mark.parametrize("ending", PACKERS)
def test_a_packed_file_of_several_parts_is_read(open_csv: Open, ending: str) -> None:
    pack = PACKERS[ending]
    rows = b"".join(b'%d,"a\n%d"\n' % (i, i) for i in range(500))
    dataset = open_csv({f"a.csv{ending}": pack(b"n,t\n" + rows[:3000]) + pack(rows[3000:])})
    assert table(dataset).to_pylist() == [{"n": i, "t": f"a\n{i}"} for i in range(500)]


@pytest.mark.parametrize("ending", PACKERS)
def test_a_packed_file_that_is_cut_off_is_refused(open_csv: Open, ending: str) -> None:
    whole = PACKERS[ending](b"a,b\n" + b"1,2\n" * 1000)
    with pytest.raises(InvalidData, match=rf"a\.csv\{ending} cannot be used"):
        open_csv({f"a.csv{ending}": whole[:-5]})
