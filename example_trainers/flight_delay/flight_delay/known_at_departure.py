"""Turns flights and weather into the columns of :mod:`flight_delay.features`."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

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

_MINUTES_PER_DAY: Final = 24 * 60
#: The package has one wind of 1,048 miles per hour. A wind above this is read as not measured.
_STRONGEST_WIND_MPH: Final = 150.0

#: A column: as long as the flights, NaN where the value is not known.
Column = NDArray[Any]


def tabulate(flights: pa.Table, weather: pa.Table) -> pa.Table:
    """Make one row of model inputs and target out of every flight.

    :param flights: As :func:`flight_delay.source.read_flights` returns them, without nulls in ``arr_delay``.
    :param weather: As :func:`flight_delay.source.read_weather` returns it.
    :return: The columns ``COLUMN_NAMES`` in the order of the flights: ids as int32, the rest as float32, no nulls.
    """
    columns = {
        **_categories(flights),
        **_schedule(flights),
        **_weather_before_departure(flights, weather),
        DEPARTURE_DELAY: _column(flights, "dep_delay"),
        ARRIVAL_DELAY: _column(flights, "arr_delay"),
    }
    for number in NUMBERS:
        columns[number.name] = np.where(np.isnan(columns[number.name]), number.center, columns[number.name])
    types = dict.fromkeys(COLUMN_NAMES, pa.float32()) | dict.fromkeys(CATEGORY_NAMES, pa.int32())
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])
    return pa.table([pa.array(columns[name]).cast(types[name], safe=False) for name in COLUMN_NAMES], schema=schema)


def _column(table: pa.Table, name: str) -> Column:
    values: Column = table[name].to_numpy()
    return values


def _ids(values: pa.ChunkedArray, vocabulary: Sequence[str]) -> Column:
    """The position in the vocabulary plus 1; 0 for a value that is not in it."""
    positions = pc.index_in(values, value_set=pa.array(vocabulary))
    ids: Column = pc.fill_null(pc.add(positions, 1), 0).to_numpy()
    return ids


def _categories(flights: pa.Table) -> dict[str, Column]:
    return {
        "carrier_id": _ids(flights["carrier"], CARRIERS),
        "origin_id": _ids(flights["origin"], ORIGINS),
        "destination_id": _ids(flights["dest"], DESTINATIONS),
        "weekday": _weekdays(flights),
    }


def _weekdays(flights: pa.Table) -> Column:
    """Of the scheduled departure, local time; 0 is Monday."""
    months = (_column(flights, "year") - 1970) * 12 + _column(flights, "month") - 1
    days = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + _column(flights, "day") - 1
    return (days + 3) % 7  # day 0, the first of 1970, was a Thursday


def _schedule(flights: pa.Table) -> dict[str, Column]:
    departure = _column(flights, "hour") * 60 + _column(flights, "minute")
    arrival_clock = _column(flights, "sched_arr_time")
    arrival = arrival_clock // 100 * 60 + arrival_clock % 100
    time_of_day = 2 * np.pi * departure / _MINUTES_PER_DAY
    return {
        "scheduled_minutes": (arrival - departure) % _MINUTES_PER_DAY,  # it may arrive after midnight
        "distance_miles": _column(flights, "distance"),
        "time_of_day_sin": np.sin(time_of_day),
        "time_of_day_cos": np.cos(time_of_day),
    }


def _weather_before_departure(flights: pa.Table, weather: pa.Table) -> dict[str, Column]:
    """The weather at the origin in the last full hour before each departure.

    The record of an hour has what was measured up to its 51st minute, precipitation as a sum (``data-raw/weather.R`` of
    the R package nycflights13): that of the departure's own hour would reveal what came after the departure.
    """
    scheduled = _column(flights, "time_hour").astype(np.int64) // 60 + _column(flights, "minute")
    last_full_hour = (scheduled + _column(flights, "dep_delay")) // 60 - 1
    rows = _rows_at(weather, _ids(flights["origin"], ORIGINS), last_full_hour)
    # An index of null takes a null.
    observed = weather.take(pa.array(rows, mask=rows < 0))

    speed = _column(observed, "wind_speed")
    speed = np.where(speed <= _STRONGEST_WIND_MPH, speed, np.nan)
    blows_to = np.deg2rad(_column(observed, "wind_dir") + 180)
    gust = _column(observed, "wind_gust")
    to_east = speed * np.sin(blows_to)
    pressure = _column(observed, "pressure")
    return {
        "temperature_f": _column(observed, "temp"),
        "dew_point_f": _column(observed, "dewp"),
        "humidity_percent": _column(observed, "humid"),
        "wind_speed_mph": speed,
        "wind_gust_mph": np.where(np.isnan(gust), speed, gust),
        "wind_to_east_mph": to_east,
        "wind_to_north_mph": speed * np.cos(blows_to),
        "precipitation_inches": _column(observed, "precip"),
        "visibility_miles": _column(observed, "visib"),
        "pressure_millibars": pressure,
        "weather_missing": rows < 0,
        "wind_missing": np.isnan(to_east),
        "pressure_missing": np.isnan(pressure),
    }


def _rows_at(weather: pa.Table, origin_ids: Column, hours: Column) -> NDArray[np.int64]:
    """Look up rows of the weather by airport and hour.

    :param hours: Hours since 1970 in UTC, which has each hour once, unlike local time in autumn.
    :return: For each flight the row of the weather, or -1 if there is none.
    """
    weather_hours = _column(weather, "time_hour").astype(np.int64) // 3600
    first = weather_hours.min()
    row_by_hour = np.full((len(ORIGINS) + 1, weather_hours.max() - first + 1), -1)
    row_by_hour[_ids(weather["origin"], ORIGINS), weather_hours - first] = np.arange(weather.num_rows)
    row_by_hour[0] = -1  # airports that have no id
    inside = (hours >= first) & (hours < first + row_by_hour.shape[1])
    return np.where(inside, row_by_hour[origin_ids, np.where(inside, hours - first, 0)], -1)
