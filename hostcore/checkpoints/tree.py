"""The tagged tree: plain Python values as JSON that come back equal, and of the same types.

Plain JSON values stay JSON: None, booleans, strings, integers of 64 bits, finite floats, lists, and dictionaries
with string keys. Everything else is an object with the key ``$``, which names what it is::

    {"$": "tuple", "items": [...]}                {"$": "float", "value": "nan"}
    {"$": "dict", "items": [[key, value], ...]}   {"$": "int", "value": "0x1000..."}
    {"$": "bytes", "base64": "..."}               {"$": "deep", "at": 3}

``ordered_dict`` and ``counter`` are like ``dict``. Tensors, arrays and the like are the business of a codec for leaves.
A JSON parser allows so many levels and no more, hence ``deep``: every 64 levels the tree continues in a list beside it.

A value that several places share comes back once for each; tensors alone come back shared.
"""

import base64
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import attrs

from hostcore.checkpoints.errors import UnstorableState

TAG: Final = "$"
_LEVELS: Final = 64
_ALLOWED: Final = (
    "Return tensors, numbers, strings, bytes, NumPy arrays, None, and lists, tuples and dictionaries of these "
    "(of exactly these classes)."
)

Json = Any
#: Encodes a leaf that is not plain Python; None for a value it does not know.
EncodeLeaf = Callable[[object, "TreePath"], "dict[str, Json] | None"]
#: Decodes what a :class:`LeafEncoder` encoded; gets the whole tagged object.
DecodeLeaf = Callable[[Mapping[str, Json]], object]


class LeafEncoder(Protocol):
    """Encodes the values that are not plain Python."""

    def encode(self, value: object, place: "TreePath") -> dict[str, Json] | None:
        """The tagged object of a value; None for one that it does not know."""

    def encode_key(self, value: object, place: "TreePath") -> dict[str, Json] | None:
        """The same for a key of a dictionary: only what is equal when it comes back, and not just itself."""


@attrs.frozen
class TreePath:
    """A path in a tree: a chain of keys up to the root."""

    above: "TreePath | None" = None
    key: object = None

    @property
    def pointer(self) -> str:
        """The path as a JSON pointer."""
        keys: list[str] = []
        place: TreePath = self
        while place.above is not None:
            keys.append("/" + str(place.key).replace("~", "~0").replace("/", "~1"))
            place = place.above
        return "".join(reversed(keys)).encode("utf-8", "backslashreplace").decode()


@attrs.frozen
class _Visit:
    """A value to encode, and where the result goes: ``into[at]``."""

    value: object
    place: TreePath
    into: Any
    at: Any
    level: int


@attrs.frozen
class _Leave:
    """All below a container is encoded."""

    identity: int


def encode(tree: object, leaves: LeafEncoder) -> dict[str, Json]:
    """Turn a tree of values into JSON values.

    Works from a list of visits and not by recursion, so that the depth of the tree does not matter.

    :raises UnstorableState: When it holds a value that cannot be brought back, or itself.
    """
    document: dict[str, Json] = {"tree": None, "deep": []}
    stack: list[_Visit | _Leave] = [_Visit(tree, TreePath(), document, "tree", 0)]
    inside: set[int] = set()
    while stack:
        visit = stack.pop()
        if isinstance(visit, _Leave):
            inside.remove(visit.identity)
            continue
        shell, children = _open(visit.value, visit.place, leaves)
        if children is None:
            visit.into[visit.at] = shell
            continue
        if id(visit.value) in inside:
            raise UnstorableState(visit.place.pointer, "a container that contains itself")
        inside.add(id(visit.value))
        level = visit.level + 1
        if level > _LEVELS:
            visit.into[visit.at] = {TAG: "deep", "at": len(document["deep"])}
            document["deep"].append(shell)
            level = 1
        else:
            visit.into[visit.at] = shell
        stack.append(_Leave(id(visit.value)))
        stack.extend(
            _Visit(value, TreePath(visit.place, key), into, at, level) for value, key, into, at in reversed(children)
        )
    return document


#: value, key in the tree, and where its JSON goes: container, index
_Child = tuple[object, object, Any, Any]


def _open(value: object, place: TreePath, leaves: LeafEncoder) -> tuple[Json, list[_Child] | None]:
    """The JSON of a value; of a container without its children, which are listed beside it."""
    kind = type(value)
    if kind in (list, tuple):
        assert isinstance(value, Sequence)
        items: list[Json] = [None] * len(value)
        children: list[_Child] = [(child, index, items, index) for index, child in enumerate(value)]
        return (items if kind is list else {TAG: "tuple", "items": items}), children
    if kind is dict and _is_json_object(value):
        assert isinstance(value, dict)
        shell = dict.fromkeys(value)
        return shell, [(child, key, shell, key) for key, child in value.items()]
    if kind in _DICTIONARIES:
        assert isinstance(value, dict)
        pairs = [[_scalar(key, TreePath(place, key), leaves.encode_key), None] for key in value]
        tagged: dict[str, Json] = {TAG: _DICTIONARIES[kind], "items": pairs}
        children = [(child, key, pair, 1) for pair, (key, child) in zip(pairs, value.items(), strict=True)]
        if attributes := getattr(value, "__dict__", None):
            tagged["attributes"] = None
            children.append((attributes, "__dict__", tagged, "attributes"))
        return tagged, children
    return _scalar(value, place, leaves.encode), None


#: An ordered dictionary may carry attributes, and those of modules do: ``_metadata`` has the versions of the layers.
_DICTIONARIES: Final[Mapping[type, str]] = {dict: "dict", OrderedDict: "ordered_dict", Counter: "counter"}


def _is_json_object(value: object) -> bool:
    assert isinstance(value, dict)
    return all(type(key) is str and key != TAG and _is_unicode(key) for key in value)


def _is_unicode(text: str) -> bool:
    """Return whether a string can be written as UTF-8: a lone surrogate cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _scalar(value: object, place: TreePath, encode_leaf: EncodeLeaf) -> Json:
    """The JSON of a value that holds no others; of a tuple too, since tuples are keys of dictionaries.

    :raises UnstorableState: When it cannot be brought back.
    """
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        assert isinstance(value, str)
        return (
            value if _is_unicode(value) else {TAG: "str", "base64": to_base64(value.encode("utf-8", "surrogatepass"))}
        )
    if kind is int:
        assert isinstance(value, int)
        return value if -(2**63) <= value < 2**63 else {TAG: "int", "value": hex(value)}
    if kind is float:
        assert isinstance(value, float)
        return value if math.isfinite(value) else {TAG: "float", "value": str(value)}
    if kind is bytes:
        assert isinstance(value, bytes)
        return {TAG: "bytes", "base64": to_base64(value)}
    if kind is tuple:
        assert isinstance(value, tuple)
        items = [_scalar(item, TreePath(place, index), encode_leaf) for index, item in enumerate(value)]
        return {TAG: "tuple", "items": items}
    leaf = encode_leaf(value, place)
    if leaf is None:
        raise UnstorableState(place.pointer, f"of class {kind.__module__}.{kind.__qualname__}", hint=_ALLOWED)
    return leaf


def to_base64(content: bytes) -> str:
    """Bytes as a JSON string."""
    return base64.b64encode(content).decode()


def from_base64(text: str) -> bytes:
    """The bytes of :func:`to_base64`.

    :raises ValueError: When it is not base64.
    """
    return base64.b64decode(text, validate=True)


def decode(document: Mapping[str, Json], decode_leaf: DecodeLeaf) -> object:
    """The tree that :func:`encode` was given.

    :raises KeyError, TypeError, ValueError, IndexError, AttributeError: When the document is not one of its own.
    """
    decoder = _Decoder(decode_leaf, deep=[None] * len(document["deep"]))
    for at in reversed(range(len(decoder.deep))):  # deeper parts come later in the list
        decoder.deep[at] = decoder.value(document["deep"][at])
    return decoder.value(document["tree"])


@attrs.frozen
class _Decoder:
    leaf: DecodeLeaf
    #: The parts of the tree below the first 64 levels.
    deep: list[Any]

    def value(self, node: Json) -> Any:
        """The value of a node, whatever it is."""
        if isinstance(node, list):
            return [self.value(item) for item in node]
        if not isinstance(node, dict):
            return node
        if TAG not in node:
            return {key: self.value(item) for key, item in node.items()}
        return self._tagged(node[TAG], node)

    def _tagged(self, tag: str, node: Mapping[str, Json]) -> Any:
        match tag:
            case "tuple":
                return tuple(self.value(item) for item in node["items"])
            case "dict":
                return dict(self._pairs(node))
            case "ordered_dict":
                return self._with_attributes(OrderedDict(self._pairs(node)), node)
            case "counter":
                return self._with_attributes(Counter(dict(self._pairs(node))), node)
            case "str":
                return from_base64(node["base64"]).decode("utf-8", "surrogatepass")
            case "int":
                return int(node["value"], 16)
            case "float":
                return float(node["value"])
            case "bytes":
                return from_base64(node["base64"])
            case "deep":
                return self.deep[node["at"]]
        return self.leaf(node)

    def _pairs(self, node: Mapping[str, Json]) -> list[tuple[Any, Any]]:
        return [(self.value(key), self.value(item)) for key, item in node["items"]]

    def _with_attributes(self, mapping: Any, node: Mapping[str, Json]) -> Any:
        if "attributes" in node:
            vars(mapping).update(self.value(node["attributes"]))
        return mapping
