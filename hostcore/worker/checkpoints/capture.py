"""Capturing a checkpoint: the state of all components is copied between two steps, on all ranks."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from hostcore.checkpoints.encoding import encode_whole
from hostcore.checkpoints.errors import CheckpointError, UnstorableState
from hostcore.checkpoints.sharded import ShardBuffer, ShardSnapshot
from hostcore.checkpoints.snapshot import StateBuffer, StateSnapshot
from hostcore.plugins.load import Component
from hostcore.worker import randomness
from hostcore.worker.checkpoints.trainer_state import STATE, TrainerCalls, returned_by
from hostcore.worker.feed.feed import Feed
from hostcore.worker.mistakes import Mistakes
from hostcore.worker.progress import TrainingProgress
from hostcore.worker.ranks.nodes import Nodes
from hostcore.worker.ranks.outcome import on_all, on_first
from hostcore.worker.ranks.protocol import Ranks
from hostcore.worker.requests import Requests
from hostcore_hookspecs.context import StepContext


@attrs.frozen(kw_only=True, eq=False)
class CaptureSource:
    """Everything that keeps a state, for a checkpoint to capture."""

    ranks: Ranks
    ctx: StepContext
    #: What the trainer's ``configure`` returned.
    state: Any
    trainer: TrainerCalls
    #: Callback components that keep a state, by the label of their use.
    callbacks: Mapping[str, Component]
    feed: Feed
    progress: TrainingProgress
    requests: Requests
    nodes: Nodes
    #: Looks at what the trainer gives.
    mistakes: Mistakes

    @property
    def commits(self) -> bool:
        """True on the rank that writes for all."""
        return self.ranks.rank == 0


@attrs.frozen(kw_only=True)
class _RankPart:
    """One rank's part of a checkpoint for the first rank, in values that can be sent."""

    #: Of the rows that this rank has read.
    digest: int
    #: The keys of the tensors that are spread over the ranks.
    sharded: Sequence[str]
    random: Mapping[str, Any]


@attrs.define(kw_only=True, eq=False)
class Captured:
    """The state that a rank has copied."""

    #: By the name of their files; empty but on the first rank.
    snapshots: dict[str, StateSnapshot]
    shards: ShardSnapshot | None
    #: What ``save_checkpoint`` returned, and the states of the callbacks.
    info: dict[str, Any] | None
    callbacks: dict[str, Any]
    part: _RankPart


class Capture:
    """Copies the state, each time into the same memory."""

    def __init__(self, source: CaptureSource) -> None:
        self._source = source
        self._buffers: Mapping[str, StateBuffer] = defaultdict(StateBuffer)
        self._shards = ShardBuffer()

    def capture(self, folder: Path, *, final: bool) -> Captured:
        """Copy everything that a checkpoint holds. A collective.

        :param folder: That of the checkpoint, where ``save_checkpoint`` writes below.
        """
        own: list[Captured] = []

        def capture_own() -> _RankPart:
            own.append(self._capture_part(folder, final=final))
            return own[0].part

        parts = on_all(self._source.ranks, capture_own)
        _check_alike([part.sharded for part in parts])
        on_first(self._source.ranks, lambda: self._copy_host(own[0], parts))
        return own[0]

    def rehearse(self) -> None:
        """See that a checkpoint could hold what components keep now. Copies and writes nothing. A collective."""
        _check_alike(on_all(self._source.ranks, self._encode))

    def _encode(self) -> Sequence[str]:
        """Encode what this rank's components keep; the keys of the tensors that are spread over the ranks."""
        source = self._source
        source.trainer.check_default(source.state)
        with randomness.kept():
            encoded = source.trainer.encoded(source.state)
            source.mistakes.look(encoded)
            for callback in source.callbacks.values():
                _encode_alone(callback, callback.instance.callback_state())
        return tuple(encoded.sharded)

    def _capture_part(self, folder: Path, *, final: bool) -> Captured:
        """Copy what this rank has. The random states come last: what ran before may draw."""
        source = self._source
        encoded = source.trainer.encoded(source.state)
        source.mistakes.look(encoded, final=final)
        snapshots = {STATE: self._buffers[STATE].copy(encoded)} if source.commits else {}
        shards = self._shards.snapshot(encoded.sharded) if encoded.sharded else None
        info = source.trainer.save_own(source.state, folder, final, source.ctx)
        callbacks = {use: callback.instance.callback_state() for use, callback in source.callbacks.items()}
        part = _RankPart(
            digest=source.progress.stored_cursor()["digest"],
            sharded=tuple(encoded.sharded),
            random=randomness.capture(),
        )
        return Captured(snapshots=snapshots, shards=shards, info=info, callbacks=callbacks, part=part)

    def _copy_host(self, captured: Captured, parts: Sequence[_RankPart]) -> None:
        """Copy what the host itself keeps, of all ranks."""
        source = self._source
        digest = sum(part.digest for part in parts) % 2**64
        host = {
            "run_id": source.ctx.job.run_id,
            "world_size": source.ranks.world_size,
            "progress": source.progress.stored(),
            "cursor": {**source.progress.stored_cursor(), "digest": digest},
            "data": dict(source.feed.identity()),
            "shard_rows": list(source.feed.shard_rows),
            "unit": getattr(getattr(source.feed, "dataset", None), "unit", ""),
            "owed": source.requests.owed.stored(source.ctx.job, total_steps=source.progress.state.total_steps),
            "callbacks": captured.callbacks,
            "scaler": None if source.ctx.scaler is None else source.ctx.scaler.state_dict(),
            "trainer_checkpoint": captured.info,
        }
        try:
            captured.snapshots["host"] = self._buffers["host"].snapshot(host)
        except UnstorableState:
            for use, callback in source.callbacks.items():  # which names the plugin
                _encode_alone(callback, captured.callbacks[use])
            raise
        for rank, part in enumerate(parts):
            name = f"rank-{rank}"
            captured.snapshots[name] = self._buffers[name].snapshot({"random": part.random})


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
