"""The badge for a README: what a plugin can say of itself, drawn here or by shields.io."""

import json
from collections.abc import Sequence
from html import escape
from typing import Final

import attrs

from hostcore_conformance.result import Report

_LABEL: Final = "hostcore"
#: The advance of characters in Verdana at 11 pixels, which is what badges are set in; in pixels.
_NARROW, _WIDE, _USUAL = 4.0, 9.5, 6.9
_PADDING: Final = 6


@attrs.frozen(kw_only=True)
class Saying:
    """What the badge says."""

    text: str
    #: Of the right half; with white text on it, the contrast is at least 4.5 (WCAG AA).
    colour: str


def saying(reports: Sequence[Report]) -> Saying:
    """What can be said of all the plugins together."""
    contract = ".".join(reports[0].api_version.split(".")[:2]) if reports else ""
    if reports and all(report.certified for report in reports):
        return Saying(text=f"certified {contract}", colour="#1a7f37")
    if not reports or not all(report.ok for report in reports):
        return Saying(text="fails", colour="#cf222e")
    if not all(report.is_fully_checked for report in reports):
        return Saying(text="not fully checked", colour="#57606a")
    return Saying(text=f"conforms {contract}", colour="#0969da")


def as_endpoint(reports: Sequence[Report]) -> str:
    """The JSON that shields.io draws a badge from (https://shields.io/badges/endpoint-badge)."""
    said = saying(reports)
    document = {"schemaVersion": 1, "label": _LABEL, "message": said.text, "color": said.colour}
    return json.dumps(document, indent=2) + "\n"


def as_svg(reports: Sequence[Report]) -> str:
    """The badge itself; it needs no font and no server."""
    said = saying(reports)
    left, right = _width(_LABEL), _width(said.text)
    title = escape(f"{_LABEL}: {said.text}", quote=True)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{title}">
  <title>{title}</title>
  <clipPath id="round"><rect width="{left + right}" height="20" rx="3"/></clipPath>
  <g clip-path="url(#round)">
    <rect width="{left}" height="20" fill="#444c56"/>
    <rect x="{left}" width="{right}" height="20" fill="{escape(said.colour, quote=True)}"/>
  </g>
  <g fill="#fff" text-anchor="middle" font-family="Verdana,Geneva,DejaVu Sans,sans-serif" font-size="11">
    <text x="{left / 2:g}" y="14" textLength="{left - 2 * _PADDING}">{escape(_LABEL)}</text>
    <text x="{left + right / 2:g}" y="14" textLength="{right - 2 * _PADDING}">{escape(said.text)}</text>
  </g>
</svg>
"""


def _width(text: str) -> int:
    """Of a half, in pixels."""
    widths = [_NARROW if one in "ijlt.,:|!'f " else _WIDE if one in "mwMW" else _USUAL for one in text]
    return round(sum(widths)) + 2 * _PADDING
