"""The whole page."""

import base64
import hashlib
import time
from importlib.resources import files
from typing import Final

import attrs

from hostcore import __version__
from hostcore.cli.report import name_of
from hostcore.cli.report_page.charts import curves_section
from hostcore.cli.report_page.failure import failure_section
from hostcore.cli.report_page.head import head_section, time_of
from hostcore.cli.report_page.markup import Html, element
from hostcore.cli.report_page.recording import Recording
from hostcore.cli.report_page.samples import samples_section
from hostcore.cli.report_page.story import events_section, warnings_section
from hostcore.cli.report_page.tables import (
    attempts_section,
    checkpoints_section,
    environment_section,
    job_section,
    plugins_section,
)
from hostcore.runs.record import RunRecord
from hostcore.supervisor.standing import Standing

#: By this a report is told from any other file.
GENERATOR: Final = "hostcore report"


@attrs.frozen
class _Section:
    """A part of the page."""

    id: str
    title: str
    #: None: there is nothing to say, and the section is left out.
    content: Html | None


def write_page(standing: Standing, record: RunRecord, recording: Recording, *, now: int) -> str:
    """The report of a run: an HTML document that needs no other file and no network.

    :param record: The run's.
    :param recording: What its event log says.
    :param now: When it is written, in milliseconds since 1970.
    """
    sections = [one for one in _sections(standing, record, recording, now=now) if one.content is not None]
    links = [element("li", element("a", one.title, href=f"#{one.id}")) for one in sections]
    body = element(
        "body",
        element("a", "Skip to the content", href="#content", class_="skip"),
        element("header", head_section(standing, now)),
        element("nav", element("ul", *links), aria_label="Sections"),
        element("main", *map(_written, sections), id="content"),
        element("footer", _footer(standing, now)),
        element("script", _script()),
    )
    title = f"{standing.summary.run_id}: {standing.summary.status}"
    return f"<!doctype html>\n{element('html', _head(title), body, lang='en')}\n"


def _sections(standing: Standing, record: RunRecord, recording: Recording, *, now: int) -> list[_Section]:
    directory, job, run = standing.directory, record.job, name_of(standing.directory)
    return [
        _Section("failure", "Failure", failure_section(standing)),
        _Section("curves", "Curves", curves_section(recording)),
        _Section("warnings", "Warnings", warnings_section(recording, run)),
        _Section("samples", "Samples", samples_section(directory.samples, job.get("samples") or [])),
        _Section("attempts", "Attempts", attempts_section(standing, now)),
        _Section("checkpoints", "Checkpoints", checkpoints_section(standing, recording)),
        _Section("events", "Events", events_section(recording, run)),
        _Section("plugins", "Plugins", plugins_section(standing.plugins)),
        _Section("environment", "Environment", environment_section(record.environment)),
        _Section("job", "Job", job_section(job)),
    ]


def _written(section: _Section) -> Html:
    heading = f"heading-{section.id}"
    return element(
        "section", element("h2", section.title, id=heading), section.content, id=section.id, aria_labelledby=heading
    )


def _head(title: str) -> Html:
    style, script = _style(), _script()
    # Nothing is ever loaded, and nothing that a run has brought along is ever executed.
    policy = f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="generator", content=GENERATOR),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", style),
    )


def _footer(standing: Standing, now: int) -> Html:
    goes_on = " The run was going on then." if standing.summary.status == "running" else ""
    offset = time.strftime("%z", time.localtime(now / 1000))
    told = f" by hostcore {__version__}. Times are in UTC{offset[:3]}:{offset[3:]}.{goes_on}"
    return element("p", "Written ", time_of(now), told)


def _resource(name: str, package: str = __package__ or "") -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")


def _shared(name: str) -> str:
    """What the page of the service is made of, too."""
    return _resource(f"assets/{name}", "hostcore.service.page")


def _style() -> Html:
    return Html(_resource("page.css") + _shared("plots.css"))


def _script() -> Html:
    shared = "".join(map(_shared, ("scales.js", "picture.js", "gallery.js")))
    return Html(_resource("events.js") + shared + _resource("curves.js"))


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
