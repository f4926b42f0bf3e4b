"""How many rows are decoded at once follows from what a row group says of its columns, and from the rows before."""

import numpy as np
import pyarrow as pa
import pytest

from hostcore_builtin_plugins.sources.row_budget import LIMIT_BYTES, MOST_ROWS, TARGET_BYTES, ColumnSize, RowBudget

MIB = 1 << 20


def strings(lengths: np.ndarray) -> pa.RecordBatch:
    return pa.record_batch({"x": ["x" * int(length) for length in lengths]})


def decode(lengths: np.ndarray, size: ColumnSize) -> list[pa.RecordBatch]:
    """Decode rows of these lengths as the budget says."""
    budget, batches, start = RowBudget(len(lengths), {"x": size}), [], 0
    while start < len(lengths):
        batches.append(strings(lengths[start : start + budget.next_rows]))
        start += batches[-1].num_rows
        budget.spend(batches[-1])
    return batches


@pytest.mark.parametrize(("width", "rows"), [(8, MOST_ROWS), (288, 32_768), (MIB, 9), (64 * MIB, 1)])
def test_numbers_are_decoded_by_their_width(width: int, rows: int) -> None:
    budget = RowBudget(1_000_000, {"x": ColumnSize(num_bytes=width * 1_000_000, is_even=True)})
    assert budget.next_rows == rows
    budget.spend(pa.record_batch({"x": pa.nulls(rows)}))
    assert budget.next_rows == rows


@pytest.mark.parametrize(("open_groups", "rows"), [(1, 9), (8, 6), (24, 2), (100, 2)])
def test_fewer_numbers_are_decoded_at_once_of_each_of_many_row_groups(open_groups: int, rows: int) -> None:
    size = ColumnSize(num_bytes=MIB * 1000, is_even=True)
    assert RowBudget(1000, {"x": size}, lambda: open_groups).next_rows == rows


def test_no_string_of_a_dictionary_makes_a_batch_too_large() -> None:
    lengths = np.array([1] * 5000 + [100_000] * 500 + [1] * 5000)
    batches = decode(lengths, ColumnSize(num_bytes=None, longest_row=100_000))
    assert max(batch.nbytes for batch in batches) <= 1.1 * LIMIT_BYTES
    assert max(batch.num_rows for batch in batches) == LIMIT_BYTES // 100_000


def test_rows_of_one_size_are_decoded_in_few_batches() -> None:
    lengths = np.full(100_000, 1000)
    batches = decode(lengths, ColumnSize(num_bytes=int(lengths.sum()) + 4 * len(lengths)))
    assert len(batches) < 1.2 * lengths.sum() / TARGET_BYTES
    assert max(batch.nbytes for batch in batches) < 1.1 * TARGET_BYTES


@pytest.mark.parametrize("place", ["first", "in the middle", "last"])
def test_large_rows_among_small_ones_are_decoded_a_few_at_a_time(place: str) -> None:
    small, large = np.full(50_000, 10), np.full(200, MIB)
    parts = {"first": [large, small, small], "in the middle": [small, large, small], "last": [small, small, large]}
    lengths = np.concatenate(parts[place])
    batches = decode(lengths, ColumnSize(num_bytes=int(lengths.sum()) + 4 * len(lengths)))
    assert max(batch.nbytes for batch in batches) < 2 * LIMIT_BYTES


def test_strings_of_which_nothing_is_known_are_decoded_a_few_at_a_time() -> None:
    lengths = np.array([1] * 5000 + [100_000] * 500 + [1] * 5000)
    batches = decode(lengths, ColumnSize(num_bytes=None))
    assert max(batch.nbytes for batch in batches) <= LIMIT_BYTES
    assert batches[0].num_rows == 1


def test_texts_of_very_different_lengths_do_not_end_up_in_single_rows() -> None:
    print("seed", seed := 7)
    lengths = np.random.default_rng(seed).lognormal(5, 1.5, 100_000).astype(int)
    batches = decode(lengths, ColumnSize(num_bytes=int(lengths.sum()) + 4 * len(lengths)))
    assert len(batches) < 4 * lengths.sum() / TARGET_BYTES
