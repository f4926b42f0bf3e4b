"""What may be left on a disk after a power cut, under a pessimistic model of file systems.

- The content of a file is on the disk only after an fsync of that file. Until then the file may be as it was, hold
  everything, be empty or cut short, or hold zeros or garbage of the right length.
- A change of a folder (a name that was made, renamed or removed) is on the disk only after an fsync of that folder.
  Until then each change may or may not have reached it, in any combination: no order is kept between them.
- A rename within a folder is one change: it is there whole, or not at all.

Real file systems keep more than that, each something else.
"""

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
from disk_log import Call, Entry, Mark

#: Paths below the recorded folder; the content of a file, None for a folder.
Tree = Mapping[str, bytes | None]

#: As long as there are no more combinations than this, all are tried; else the extreme ones, and some at random.
_ALL = 128
_RANDOM = 24


@attrs.define(eq=False)
class _File:
    durable: bytes
    cached: bytes

    def variants(self) -> Sequence[bytes]:
        """What it may hold after a power cut: first as it was, last as it should be."""
        if self.durable == self.cached:
            return [self.cached]
        size = len(self.cached)
        garbage = random.Random(size).randbytes(size)
        return [self.durable, b"", bytes(size), garbage, self.cached[: size // 2], self.cached]


@attrs.define(eq=False)
class _Folder:
    durable: dict[str, "_Node"] = attrs.field(factory=dict)
    cached: dict[str, "_Node"] = attrs.field(factory=dict)
    #: Each a few names with what they stand for from then on, changed at once.
    pending: list[Mapping[str, "_Node | None"]] = attrs.field(factory=list)

    def change(self, names: Mapping[str, "_Node | None"]) -> None:
        self.pending.append(names)
        _apply(self.cached, names)

    def after(self, survived: Sequence[int]) -> dict[str, "_Node"]:
        entries = dict(self.durable)
        for names, did in zip(self.pending, survived, strict=True):
            if did:
                _apply(entries, names)
        return entries

    def sync(self) -> None:
        self.durable, self.pending = dict(self.cached), []


_Node = _File | _Folder


def _apply(entries: dict[str, _Node], names: Mapping[str, _Node | None]) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class Disk:
    """A disk and the kernel's cache of it.

    :param tree: What is on it, all of it durable.
    """

    def __init__(self, tree: Tree) -> None:
        self._root = _Folder()
        for path, content in tree.items():
            folder, name = self._place(path)
            folder.cached[name] = _Folder() if content is None else _File(content, content)
        for node in self._nodes():
            if isinstance(node, _Folder):
                node.sync()

    def _find(self, path: str) -> _Node:
        node: _Node = self._root
        for name in Path(path).parts:
            assert isinstance(node, _Folder)
            node = node.cached[name]
        return node

    def _place(self, path: str) -> tuple[_Folder, str]:
        folder = self._find(str(Path(path).parent))
        assert isinstance(folder, _Folder)
        return folder, Path(path).name

    def do(self, call: Call) -> None:
        """Do what was recorded."""
        if call.kind == "fsync":
            self._sync(self._find(call.path))
            return
        if call.kind in ("write", "truncate"):
            file = self._find(call.path)
            assert isinstance(file, _File)
            file.cached = file.cached + call.data if call.kind == "write" else b""
            return
        folder, name = self._place(call.path)
        if call.kind == "rename":
            same, target = self._place(call.target)
            assert same is folder, "a rename between folders is not one change"
            folder.change({name: None, target: folder.cached[name]})
        else:
            made: Mapping[str, _Node] = {"mkdir": _Folder(), "create": _File(b"", b"")}
            folder.change({name: made.get(call.kind)})

    def _sync(self, node: _Node) -> None:
        if isinstance(node, _Folder):
            node.sync()
        else:
            node.durable = node.cached

    def _nodes(self) -> list[_Node]:
        """Every file and folder that may be found after a power cut."""
        found: dict[int, _Node] = {}
        left: list[_Node] = [self._root]
        while left:
            node = left.pop()
            if id(node) not in found:
                found[id(node)] = node
                if isinstance(node, _Folder):
                    left += [*node.durable.values(), *node.cached.values()]
                    left += [one for names in node.pending for one in names.values() if one is not None]
        return list(found.values())

    def as_seen(self) -> Tree:
        """What every process sees while the power is on."""
        return dict(_walk(self._root, {}, {}, ""))

    def after_a_power_cut(self, rng: random.Random) -> Iterator[Tree]:
        """What may be found then: nothing that was not synced, all of it, and combinations."""
        nodes = self._nodes()
        files = [(node, node.variants()) for node in nodes if isinstance(node, _File)]
        dirty = [(node, variants) for node, variants in files if len(variants) > 1]
        folders = [node for node in nodes if isinstance(node, _Folder) and node.pending]
        sizes = [len(variants) for _, variants in dirty] + [2] * sum(len(folder.pending) for folder in folders)
        for choice in _choices(sizes, rng):
            left = iter(choice)
            contents = {id(node): variants[next(left)] for node, variants in dirty}
            entries = {id(folder): folder.after([next(left) for _ in folder.pending]) for folder in folders}
            yield dict(_walk(self._root, contents, entries, ""))


def _walk(
    folder: _Folder, contents: Mapping[int, bytes], entries: Mapping[int, Mapping[str, _Node]], above: str
) -> Iterator[tuple[str, bytes | None]]:
    for name, node in sorted(entries.get(id(folder), folder.cached).items()):
        path = f"{above}{name}"
        if isinstance(node, _Folder):
            yield path, None
            yield from _walk(node, contents, entries, f"{path}/")
        else:
            yield path, contents.get(id(node), node.cached)


def _choices(sizes: Sequence[int], rng: random.Random) -> Iterator[Sequence[int]]:
    """One number below each size."""
    if math.prod(sizes) <= _ALL:
        yield from itertools.product(*map(range, sizes))
        return
    nothing, everything = [0] * len(sizes), [size - 1 for size in sizes]
    yield nothing
    yield everything
    for place, size in enumerate(sizes):
        for value in range(size):
            yield [*nothing[:place], value, *nothing[place + 1 :]]
            yield [*everything[:place], value, *everything[place + 1 :]]
    for _ in range(_RANDOM):
        yield [rng.randrange(size) for size in sizes]


@attrs.frozen
class Promises:
    """What must be found after a power cut."""

    #: By step: what its checkpoint may hold.
    contents: Mapping[int, frozenset[str]] = attrs.field(factory=dict)
    #: Steps whose checkpoint was acknowledged, and which nobody has begun to remove since.
    kept: frozenset[int] = frozenset()

    def after(self, mark: Mark) -> "Promises":
        """The promises from a mark on."""
        step, before = mark.step, self.contents.get(mark.step, frozenset())
        if mark.promise == "may go":
            return attrs.evolve(self, kept=self.kept - {step})
        if mark.promise == "may be":
            return attrs.evolve(self, contents={**self.contents, step: before | {mark.content}})
        assert mark.promise == "is"
        return Promises({**self.contents, step: frozenset({mark.content})}, self.kept | {step})


@attrs.frozen
class Cut:
    """One disk after a power cut."""

    #: The last call before it; None: it came before the first.
    after: Call | None
    tree: Tree
    promises: Promises

    @property
    def fingerprint(self) -> int:
        """The same for two disks that are the same, with the same promises."""
        promised = frozenset(self.promises.contents.items()), self.promises.kept
        return hash((frozenset(self.tree.items()), promised))


def power_cuts(
    before: Tree, promises: Promises, log: Sequence[Entry], rng: random.Random, *, since: int = 0
) -> Iterator[Cut]:
    """Every disk that a power cut may leave, at any time from the beginning of a recording to its end.

    :param since: How many entries of the log have been done before the first power cut.
    """
    disk, last = Disk(before), None
    for number, entry in enumerate([None, *log]):
        if isinstance(entry, Mark):
            promises = promises.after(entry)
        elif entry is not None:
            disk.do(entry)
            last = entry
        if number < since:
            continue
        for tree in disk.after_a_power_cut(rng):
            yield Cut(last, tree, promises)


def read_tree(root: Path) -> Tree:
    """A folder as it is."""
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in sorted(root.rglob("*"))
    }


def write_tree(root: Path, tree: Tree) -> None:
    """Make a folder that holds a tree."""
    root.mkdir(parents=True)
    for path, content in tree.items():
        if content is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(content)
