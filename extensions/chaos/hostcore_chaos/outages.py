"""The uploader ``chaos``: for a time, no other uploader of the job reaches its store. Nothing is copied to it."""

import time
from collections.abc import Generator
from typing import Any

import attrs

from hostcore_chaos.faults import outages_of
from hostcore_chaos.record import FaultRecord
from hostcore_hookspecs import TransientError, UploadContext, hookimpl


class Outages:
    """Stands before the stores of all other uploaders, of whatever kind they are."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Settings of the uploader ``chaos``."""

        faults: tuple[str, ...] = attrs.field(
            metadata={"help": "`store-down@30s..60s`: seconds since the uploads of the attempt began."}
        )

    def __init__(self, settings: Settings) -> None:
        self._outages = outages_of(settings.faults)
        self._began = time.monotonic()
        self._record: FaultRecord | None = None
        #: Those of earlier attempts, by their places in the list.
        self._over: set[int] = set()
        self._told: set[int] = set()

    @hookimpl(wrapper=True, specname="open")
    def around_open(self, ctx: UploadContext) -> Generator[None, Any, Any]:
        """The attempt begins with the first uploader that is opened, which may be during an outage."""
        if self._record is None:
            self._record, self._began = FaultRecord(ctx.run_dir, "uploads"), time.monotonic()
            done = self._record.positions()
            self._over = {at for at, outage in enumerate(self._outages) if at in done and not outage.every}
        self._fail_if_down()
        return (yield)

    @hookimpl(wrapper=True, specname="upload_artifact")
    def around_upload(self) -> Generator[None, Any, Any]:
        """An artifact is not uploaded during an outage."""
        self._fail_if_down()
        return (yield)

    def _fail_if_down(self) -> None:
        """Stand for a store that does not answer.

        :raises TransientError: During an outage.
        """
        now = time.monotonic() - self._began
        for at, outage in enumerate(self._outages):
            if at not in self._over and outage.begin <= now < outage.end:
                if self._record is not None and at not in self._told:
                    self._told.add(at)
                    self._record.add(fault=outage.text, position=at, at=round(now, 3))
                raise TransientError(f"the store is down: injected fault {outage.text}")
