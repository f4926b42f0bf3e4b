"""What goes into a checkpoint, copied while the loop waits: on several ranks, of all of them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from hostcore.checkpoints.encoding import encode_whole
from hostcore.checkpoints.errors import CheckpointError, UnstorableState
from hostcore.checkpoints.sharded import ShardBuffer, ShardSnapshot
from hostcore.checkpoints.snapshot import StateBuffer, StateSnapshot
from hostcore.plugins.component import Component
from hostcore.worker import randomness
from hostcore.worker.feed.feed import Feed
from hostcore.worker.progress import Progress
from hostcore.worker.ranks.nodes import Nodes
from hostcore.worker.ranks.outcome import on_all, on_first
from hostcore.worker.ranks.protocol import Ranks
from hostcore.worker.trainer_state import STATE, TrainerCalls, returned_by
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
    callbacks: Mapping[str, Component]
    feed: Feed
    progress: Progress
    nodes: Nodes

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
        _check_alike([part.sharded for part in parts])
        on_first(self._subject.ranks, lambda: self._copy_host(own[0], parts))
        return own[0]

    def rehearse(self) -> None:
        """See that a checkpoint could hold what components keep now. Copies and writes nothing. A collective."""
        _check_alike(on_all(self._subject.ranks, self._encode))

    def _encode(self) -> Sequence[str]:
        """Encode what this rank's components keep; the keys of the tensors that are spread over the ranks."""
        subject = self._subject
        with randomness.kept():
            encoded = subject.trainer.encoded(subject.state)
            for callback in subject.callbacks.values():
                _encode_alone(callback, callback.instance.callback_state())
        return tuple(encoded.sharded)

    def _take_part(self, folder: Path, *, final: bool) -> Taken:
        """Copy what this rank has. The random states come last: what ran before may draw."""
        subject = self._subject
        encoded = subject.trainer.encoded(subject.state)
        snapshots = {STATE: self._buffers[STATE].copy(encoded)} if subject.commits else {}
        shards = self._shards.snapshot(encoded.sharded) if encoded.sharded else None
        info = subject.trainer.save_own(subject.state, folder, final, subject.ctx)
        callbacks = {use: callback.instance.callback_state() for use, callback in subject.callbacks.items()}
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
        try:
            taken.snapshots["host"] = self._buffers["host"].snapshot(host)
        except UnstorableState:
            for use, callback in subject.callbacks.items():  # which names the plugin
                _encode_alone(callback, taken.callbacks[use])
            raise
        for rank, part in enumerate(parts):
            name = f"rank-{rank}"
            taken.snapshots[name] = self._buffers[name].snapshot({"random": part.random})


def _encode_alone(callback: Component, state: object) -> None:
    with returned_by(callback, "callback_state"):
        encode_whole(state)


def _check_alike(sharded: Sequence[Sequence[str]]) -> None:
    """See that all ranks have the same tensors that are spread over them.

    :param sharded: Their keys, by rank.
    """
    for rank, keys in enumerate(sharded):
        if keys != sharded[0]:
            one, other = set(keys), set(sharded[0])
            key = min(one ^ other, default="their order")
            raise CheckpointError(
                f"state_dict returns other tensors on rank {rank} than on rank 0: {key}",
                code="checkpoint.unstorable",
                hint="all ranks must return the same tensors that are spread over them",
            )
