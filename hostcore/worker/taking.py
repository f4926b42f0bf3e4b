"""What goes into a checkpoint, copied while the loop waits: on several ranks, of all of them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.sharded import ShardBuffer, ShardSnapshot
from hostcore.checkpoints.snapshot import StateBuffer, StateSnapshot
from hostcore.worker import randomness
from hostcore.worker.feed.feed import Feed
from hostcore.worker.progress import Progress
from hostcore.worker.ranks.outcome import on_all, on_first
from hostcore.worker.ranks.protocol import Ranks
from hostcore.worker.trainer_state import STATE, TrainerCalls
from hostcore_hookspecs.context import StepContext


@attrs.frozen(kw_only=True, eq=False)
class Subject:
    """What a checkpoint is of."""

    ranks: Ranks
    ctx: StepContext
    #: What the trainer's ``configure`` returned.
    state: Any
    trainer: TrainerCalls
    #: Callback components that keep a state, by the label of their use.
    callbacks: Mapping[str, Any]
    feed: Feed
    progress: Progress

    @property
    def commits(self) -> bool:
        """Whether this is the rank that writes for all."""
        return self.ranks.rank == 0


@attrs.frozen(kw_only=True)
class _Part:
    """What the first rank needs of each, in values that can be sent."""

    #: Of the rows that this rank has read.
    digest: int
    #: The keys of the tensors that are spread over the ranks.
    sharded: Sequence[str]
    random: Mapping[str, Any]


@attrs.define(kw_only=True, eq=False)
class Taken:
    """What a rank has copied."""

    #: By the name of their files; empty but on the first rank.
    snapshots: dict[str, StateSnapshot]
    shards: ShardSnapshot | None
    #: What ``save_checkpoint`` returned, and the states of the callbacks.
    info: dict[str, Any] | None
    callbacks: dict[str, Any]
    part: _Part


class Taker:
    """Copies a subject, each time into the same memory."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._buffers: Mapping[str, StateBuffer] = defaultdict(StateBuffer)
        self._shards = ShardBuffer()

    def take(self, folder: Path, *, final: bool) -> Taken:
        """Copy everything that a checkpoint holds. A collective.

        :param folder: That of the checkpoint, where ``save_checkpoint`` writes below.
        """
        own: list[Taken] = []

        def take() -> _Part:
            own.append(self._take_part(folder, final=final))
            return own[0].part

        parts = on_all(self._subject.ranks, take)
        _check_alike(parts)
        on_first(self._subject.ranks, lambda: self._copy_host(own[0], parts))
        return own[0]

    def _take_part(self, folder: Path, *, final: bool) -> Taken:
        """Copy what this rank has. The random states come last: what ran before may draw."""
        subject = self._subject
        encoded = subject.trainer.encoded(subject.state)
        snapshots = {STATE: self._buffers[STATE].copy(encoded)} if subject.commits else {}
        shards = self._shards.snapshot(encoded.sharded) if encoded.sharded else None
        info = subject.trainer.save_own(subject.state, folder, final, subject.ctx)
        callbacks = {use: callback.callback_state() for use, callback in subject.callbacks.items()}
        part = _Part(
            digest=subject.progress.stored_cursor()["digest"],
            sharded=tuple(encoded.sharded),
            random=randomness.capture(),
        )
        return Taken(snapshots=snapshots, shards=shards, info=info, callbacks=callbacks, part=part)

    def _copy_host(self, taken: Taken, parts: Sequence[_Part]) -> None:
        """Copy what the host itself keeps, of all ranks."""
        subject = self._subject
        digest = sum(part.digest for part in parts) % 2**64
        host = {
            "run_id": subject.ctx.job.run_id,
            "world_size": subject.ranks.world_size,
            "progress": subject.progress.stored(),
            "cursor": {**subject.progress.stored_cursor(), "digest": digest},
            "data": dict(subject.feed.identity()),
            "shard_rows": list(subject.feed.shard_rows),
            "callbacks": taken.callbacks,
            "scaler": None if subject.ctx.scaler is None else subject.ctx.scaler.state_dict(),
            "trainer_checkpoint": taken.info,
        }
        taken.snapshots["host"] = self._buffers["host"].snapshot(host)
        for rank, part in enumerate(parts):
            name = f"rank-{rank}"
            taken.snapshots[name] = self._buffers[name].snapshot({"random": part.random})


def _check_alike(parts: Sequence[_Part]) -> None:
    for rank, part in enumerate(parts):
        if part.sharded != parts[0].sharded:
            one, other = set(part.sharded), set(parts[0].sharded)
            key = min(one ^ other, default="their order")
            raise CheckpointError(
                f"state_dict returns other tensors on rank {rank} than on rank 0: {key}",
                code="checkpoint.unstorable",
                hint="all ranks must return the same tensors that are spread over them",
            )
