"""The columns of the prepared data: what the model may read, and what it predicts.

Everything the model reads is known when the aircraft leaves its gate. What only the arrival reveals (arrival time, time
in the air) is not in the prepared data at all.
"""

from typing import Final

import attrs


@attrs.frozen
class Numeric:
    """A number. The model reads ``(value - center) / scale``."""

    name: str
    #: About the mean, in the column's own unit. An unknown value is stored as this, so that the model reads 0.
    center: float = 0.0
    #: About the standard deviation, in the column's own unit.
    scale: float = 1.0


@attrs.frozen
class Category:
    """An id. The model reads a learned vector of ``width`` numbers in its place."""

    name: str
    #: Ids are below this.
    size: int
    width: int


def _codes(text: str) -> tuple[str, ...]:
    return tuple(text.split())


#: An id is the position in its tuple, plus 1. Id 0 stands for any other.
CARRIERS: Final = _codes("9E AA AS B6 DL EV F9 FL HA MQ OO UA US VX WN YV")
ORIGINS: Final = _codes("EWR JFK LGA")
DESTINATIONS: Final = _codes(
    """
    ABQ ACK ALB ANC ATL AUS AVL BDL BGR BHM BNA BOS BQN BTV BUF BUR BWI BZN CAE CAK CHO CHS CLE CLT CMH CRW CVG DAY DCA
    DEN DFW DSM DTW EGE EYW FLL GRR GSO GSP HDN HNL HOU IAD IAH ILM IND JAC JAX LAS LAX LEX LGA LGB MCI MCO MDW MEM MHT
    MIA MKE MSN MSP MSY MTJ MVY MYR OAK OKC OMA ORD ORF PBI PDX PHL PHX PIT PSE PSP PVD PWM RDU RIC ROC RSW SAN SAT SAV
    SBN SDF SEA SFO SJC SJU SLC SMF SNA SRQ STL STT SYR TPA TUL TVC TYS XNA
    """
)

CATEGORIES: Final = (
    Category("carrier_id", size=len(CARRIERS) + 1, width=8),
    Category("origin_id", size=len(ORIGINS) + 1, width=4),
    Category("destination_id", size=len(DESTINATIONS) + 1, width=16),
    Category("weekday", size=7, width=4),  # 0 is Monday
)

#: At the gate; negative when the flight left early.
DEPARTURE_DELAY: Final = "departure_delay_minutes"

FLIGHT_NUMBERS: Final = (
    Numeric(DEPARTURE_DELAY, center=12.0, scale=40.0),
    Numeric("scheduled_minutes", center=143.0, scale=48.0),  # between the two local clocks: time zones are in it
    Numeric("distance_miles", center=1050.0, scale=735.0),
)

#: Flights of one hour and airport share these. The weather is that of the last full hour before departure.
SHARED_NUMBERS: Final = (
    Numeric("time_of_day_sin", scale=0.7),
    Numeric("time_of_day_cos", scale=0.7),
    Numeric("temperature_f", center=57.0, scale=18.0),
    Numeric("dew_point_f", center=42.0, scale=19.0),
    Numeric("humidity_percent", center=60.0, scale=19.0),
    Numeric("wind_speed_mph", center=11.0, scale=6.0),
    Numeric("wind_gust_mph", center=13.0, scale=8.0),  # the wind speed where no gust was reported
    Numeric("wind_to_east_mph", center=3.0, scale=8.0),
    Numeric("wind_to_north_mph", center=0.0, scale=8.0),
    Numeric("precipitation_inches", scale=0.03),
    Numeric("visibility_miles", center=9.3, scale=2.0),
    Numeric("pressure_millibars", center=1018.0, scale=7.0),
    Numeric("weather_missing"),
    Numeric("wind_missing"),
    Numeric("pressure_missing"),
)

NUMBERS: Final = (*FLIGHT_NUMBERS, *SHARED_NUMBERS)

#: What is predicted; negative when the flight arrived early.
ARRIVAL_DELAY: Final = "arrival_delay_minutes"

CATEGORY_NAMES: Final = tuple(category.name for category in CATEGORIES)
NUMBER_NAMES: Final = tuple(number.name for number in NUMBERS)
COLUMN_NAMES: Final = (*CATEGORY_NAMES, *NUMBER_NAMES, ARRIVAL_DELAY)
