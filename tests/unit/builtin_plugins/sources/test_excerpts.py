import io

import pyarrow as pa
import pytest

from hostcore_builtin_plugins.sources.files import FileExcerpt, joined_ranges

CONTENT = bytes(range(200))


def excerpt() -> FileExcerpt:
    return FileExcerpt({10: CONTENT[10:50], 100: CONTENT[100:120]})


def test_ranges_that_nearly_touch_are_fetched_as_one() -> None:
    far = 1 << 20
    assert joined_ranges([(far, far + 5), (0, 10), (2000, 3000), (5, 8)]) == [(0, 3000), (far, far + 5)]


def test_parts_are_read_where_they_are_in_the_whole_file() -> None:
    file = pa.PythonFile(excerpt(), mode="r")
    assert file.read_at(5, 20) == CONTENT[20:25]
    assert file.read_at(20, 100) == CONTENT[100:120]
    assert file.read_at(10, 45) == CONTENT[45:50]  # as at the end of a file


def test_reading_what_was_not_fetched_is_an_error() -> None:
    for position in (0, 50, 120):
        file = excerpt()
        file.seek(position)
        with pytest.raises(OSError, match=f"byte {position} of the file was not fetched"):
            file.read(1)


def test_it_is_as_long_as_its_last_part_reaches() -> None:
    assert excerpt().seek(0, io.SEEK_END) == 120
