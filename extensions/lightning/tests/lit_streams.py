"""Streams with a state of their own: for torchdata's StatefulDataLoader, and of its nodes."""

from pathlib import Path

import torch
import user_modules
from torch.utils.data import IterableDataset
from torchdata.nodes import Batcher, IterableWrapper, Loader, Mapper
from torchdata.stateful_dataloader import StatefulDataLoader

ROWS = 400


class Counted(IterableDataset):
    """Rows that are drawn; notes in a file that it has read one."""

    def __init__(self):
        self.place = 0

    def __iter__(self):
        while self.place < ROWS:
            self.place += 1
            with Path("read.txt").open("a") as file:
                file.write(".")
            x = torch.randn(4)
            yield torch.cat([x[:3], torch.tensor([float(self.place)])]), (x.sum() > 0).long()
        self.place = 0

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


class Forgetful(Counted):
    """Shuffles in a buffer that its state does not have."""

    def __iter__(self):
        buffer = []
        for row in super().__iter__():
            buffer.append(row)
            if len(buffer) == 8:
                yield buffer.pop(int(torch.randint(8, ())))
        yield from buffer


class Unstorable(Counted):
    """Has a state that no checkpoint holds, once it was read."""

    def state_dict(self):
        return {"place": self.place, "lock": Path() if self.place else None}


class Stateful(user_modules.Data):
    dataset = Counted

    def train_dataloader(self):
        return StatefulDataLoader(self.dataset(), batch_size=2)


class Forgets(Stateful):
    dataset = Forgetful


class Lost(Stateful):
    dataset = Unstorable


class Nodes(user_modules.Data):
    def train_dataloader(self):
        rows = Mapper(IterableWrapper(range(ROWS)), lambda row: torch.full((4,), row / ROWS))
        batches = Mapper(Batcher(rows, 2), lambda batch: (torch.stack(batch), torch.tensor([0, 1])))
        return Loader(batches)


class Mapped(user_modules.Data):
    """Rows by number: nothing is left to a state."""

    def train_dataloader(self):
        return StatefulDataLoader(self.training, batch_size=8, shuffle=True, drop_last=True)
