"""What the prepared flights hold, and how the files come into being."""

import csv
import io
import json
import zipfile
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flight_delay.features import (
    ARRIVAL_DELAY,
    CARRIERS,
    CATEGORY_NAMES,
    COLUMN_NAMES,
    DEPARTURE_DELAY,
    DESTINATIONS,
    NUMBERS,
    ORIGINS,
)
from flight_delay.prepare_data import main, prepare

Row = dict[str, str]

FILES = ("train.parquet", "validation.parquet", "test.parquet")


@pytest.fixture(scope="module")
def flights(flights_folder: Path) -> list[Row]:
    """The flights that arrived, as the package has them."""
    with zipfile.ZipFile(flights_folder / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        return [row for row in csv.DictReader(io.TextIOWrapper(file)) if row["arr_delay"] != "NA"]


@pytest.fixture(scope="module")
def weather(flights_folder: Path) -> dict[tuple[str, datetime], Row]:
    """The weather by airport and hour."""
    with (flights_folder / "weather.csv").open() as file:
        return {(row["origin"], datetime.fromisoformat(row["time_hour"])): row for row in csv.DictReader(file)}


def table(folder: Path) -> pa.Table:
    """All prepared flights."""
    return pa.concat_tables([pq.read_table(folder / name) for name in FILES])


def in_prepared_order(flights: list[Row]) -> list[Row]:
    return sorted(flights, key=lambda row: (int(row["day"]) >= 22) + (int(row["day"]) >= 25))


def departure(flight: Row) -> datetime:
    minutes = int(flight["minute"]) + int(flight["dep_delay"])
    return datetime.fromisoformat(flight["time_hour"]) + timedelta(minutes=minutes)


def test_flights_without_an_arrival_are_left_out(prepared: Path, flights: list[Row]) -> None:
    assert table(prepared).num_rows == len(flights) == 457 - 15
    assert json.loads((prepared / "manifest.json").read_text())["without_arrival"] == 15


def test_days_from_the_22nd_on_validate_those_from_the_25th_on_test_and_no_flight_is_in_two_files(
    prepared: Path, flights: list[Row]
) -> None:
    days = {"train.parquet": range(1, 22), "validation.parquet": range(22, 25), "test.parquet": range(25, 32)}
    for name, which in days.items():
        expected = [int(row["arr_delay"]) for row in flights if int(row["day"]) in which]
        assert expected
        assert pq.read_table(prepared / name)[ARRIVAL_DELAY].to_pylist() == expected
    delays = [float(flight["dep_delay"]) for flight in in_prepared_order(flights)]
    assert table(prepared)[DEPARTURE_DELAY].to_pylist() == delays


def test_every_column_is_there_as_a_number_without_nulls(prepared: Path) -> None:
    schema = pq.read_schema(prepared / "train.parquet")
    assert tuple(schema.names) == COLUMN_NAMES
    assert {str(schema.field(name).type) for name in CATEGORY_NAMES} == {"int32"}
    assert {str(field.type) for field in schema if field.name not in CATEGORY_NAMES} == {"float"}
    assert not any(field.nullable for field in schema)
    assert sum(column.null_count for column in table(prepared).columns) == 0


def test_ids_say_carrier_origin_destination_and_weekday(prepared: Path, flights: list[Row]) -> None:
    rows = table(prepared).select(CATEGORY_NAMES).to_pylist()
    for row, flight in zip(rows, in_prepared_order(flights), strict=True):
        assert CARRIERS[row["carrier_id"] - 1] == flight["carrier"]
        assert ORIGINS[row["origin_id"] - 1] == flight["origin"]
        assert DESTINATIONS[row["destination_id"] - 1] == flight["dest"]
        assert row["weekday"] == datetime(2013, int(flight["month"]), int(flight["day"])).weekday()


def test_a_code_that_nobody_knows_has_the_id_0(tmp_path: Path, edited: Callable[..., Path]) -> None:
    prepare(tmp_path, edited("flights.csv", lambda flight: flight | {"carrier": "ZZ", "dest": "ZZZ"}))
    assert set(table(tmp_path)["carrier_id"].to_pylist()) == {0}
    assert set(table(tmp_path)["destination_id"].to_pylist()) == {0}


def test_the_weather_is_that_of_the_last_full_hour_before_departure(
    prepared: Path, flights: list[Row], weather: dict[tuple[str, datetime], Row]
) -> None:
    rows = table(prepared).to_pylist()
    for row, flight in zip(rows, in_prepared_order(flights), strict=True):
        hour = departure(flight).replace(minute=0) - timedelta(hours=1)
        record = weather.get((flight["origin"], hour))
        assert row["weather_missing"] == (record is None)
        if record is not None:
            assert row["temperature_f"] == pytest.approx(float(record["temp"]))
            assert row["visibility_miles"] == pytest.approx(float(record["visib"]))


def test_an_unknown_number_is_flagged_and_stored_as_its_center(prepared: Path) -> None:
    center = {number.name: number.center for number in NUMBERS}
    without_weather = [row for row in table(prepared).to_pylist() if row["weather_missing"]]
    assert without_weather
    for row in without_weather:
        assert row["wind_missing"] == row["pressure_missing"] == 1
        assert row["temperature_f"] == center["temperature_f"]
        assert row["wind_to_east_mph"] == center["wind_to_east_mph"]


def test_an_impossible_wind_is_read_as_not_measured(tmp_path: Path, edited: Callable[..., Path]) -> None:
    prepare(tmp_path, edited("weather.csv", lambda record: record | {"wind_speed": "1048.36"}))
    assert set(table(tmp_path)["wind_missing"].to_pylist()) == {1.0}
    assert max(table(tmp_path)["wind_speed_mph"].to_pylist()) < 100


def test_nothing_that_only_the_arrival_reveals_is_in_the_inputs(
    prepared: Path, tmp_path: Path, edited: Callable[..., Path]
) -> None:
    def delayed_on_the_way(flight: Row) -> Row:
        late = {name: "1" for name in ("arr_time", "air_time", "arr_delay") if flight[name] != "NA"}
        return flight | late

    prepare(tmp_path, edited("flights.csv", delayed_on_the_way))
    assert set(table(tmp_path)[ARRIVAL_DELAY].to_pylist()) == {1.0}
    assert table(tmp_path).drop(ARRIVAL_DELAY).equals(table(prepared).drop(ARRIVAL_DELAY))


def test_the_weather_after_departure_is_not_in_the_inputs(
    prepared: Path, tmp_path: Path, flights: list[Row], edited: Callable[..., Path]
) -> None:
    noon = datetime.fromisoformat("2013-07-09T16:00:00Z")

    def storm_from_noon_on(record: Row) -> Row:
        after = datetime.fromisoformat(record["time_hour"]) >= noon
        return record | {"wind_speed": "60", "precip": "1", "visib": "0"} if after else record

    prepare(tmp_path, edited("weather.csv", storm_from_noon_on))
    before, changed = table(prepared).to_pylist(), table(tmp_path).to_pylist()
    gone = [departure(flight) < noon + timedelta(hours=1) for flight in in_prepared_order(flights)]
    assert any(gone)
    assert [row for row, has_gone in zip(changed, gone, strict=True) if has_gone] == [
        row for row, has_gone in zip(before, gone, strict=True) if has_gone
    ]
    assert changed != before


def test_a_folder_is_left_as_it_is_unless_a_file_is_missing_or_cut_short(
    tmp_path: Path, flights_folder: Path, prepared: Path
) -> None:
    whole = {path.name: path.read_bytes() for path in prepared.iterdir()}
    prepare(tmp_path, flights_folder)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    prepare(tmp_path, tmp_path / "there are no flights here")
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    for lost in ("manifest.json", *FILES):
        (tmp_path / lost).unlink()
        prepare(tmp_path, flights_folder)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == whole
    (tmp_path / "train.parquet").write_bytes(whole["train.parquet"][:100])
    prepare(tmp_path, flights_folder)
    assert (tmp_path / "train.parquet").read_bytes() == whole["train.parquet"]


def test_a_source_without_flights_and_a_folder_that_cannot_be_written_are_one_error_each(
    tmp_path: Path, flights_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path / "out"), "--source", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {tmp_path / 'flights.csv.zip'}: ")
    assert "hint: " in error
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("in the way")
    assert main(["--out", str(tmp_path / "file"), "--source", str(flights_folder)]) == 2
    assert "cannot write" in capsys.readouterr().err
