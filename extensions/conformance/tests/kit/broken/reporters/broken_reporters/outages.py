"""Broken in what they do while the sink is not well."""

import contextlib
import json

from reference_plugins.reporter import ReferenceReporter

from hostcore_hookspecs import Event, FatalError, ReporterContext, TransientError


class Swallows(ReferenceReporter):
    def report_event(self, event: Event) -> None:
        with contextlib.suppress(Exception):
            super().report_event(event)


class GivesUp(ReferenceReporter):
    def report_event(self, event: Event) -> None:
        try:
            super().report_event(event)
        except TransientError as error:
            raise FatalError(error.message) from error


class GreetsTheServer(ReferenceReporter):
    def open(self, ctx: ReporterContext) -> None:
        super().open(ctx)
        status = self.answer_to(json.dumps({"seq": 0, "run_id": ctx.run_id}).encode(), key=f"{ctx.run_id}:hello")
        if status != 204:
            raise FatalError(f"the server answers {status}")


class StaysBroken(ReferenceReporter):
    _is_broken = False

    def report_event(self, event: Event) -> None:
        if self._is_broken:
            raise ConnectionError("not connected")
        try:
            super().report_event(event)
        except TransientError:
            self._is_broken = True
            raise


class Waits(ReferenceReporter):
    """Has no timeout."""

    def __init__(self, *, settings: ReferenceReporter.Settings) -> None:
        super().__init__(
            settings=ReferenceReporter.Settings(url=settings.url, token=settings.token, timeout_seconds=60)
        )


class DropsWhatTookTooLong(ReferenceReporter):
    def report_event(self, event: Event) -> None:
        try:
            super().report_event(event)
        except TransientError as error:
            if "timed out" not in error.message:
                raise


class ShowsItsToken(ReferenceReporter):
    def report_event(self, event: Event) -> None:
        try:
            super().report_event(event)
        except TransientError as error:
            token = self._settings.token
            raise TransientError(f"the request with {token.value if token else 'no token'} failed") from error


class SendsItsToken(ReferenceReporter):
    def post(self, body: bytes, *, key: str) -> None:
        token = self._settings.token
        event = {**json.loads(body), "settings": {"token": token.value if token else None}}
        super().post(json.dumps(event).encode(), key=key)
