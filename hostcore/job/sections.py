"""The objects inside a job file."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NoReturn

import attrs
from annotated_types import Ge, Gt, Lt, MinLen

from hostcore.job.bounds import Pattern
from hostcore.job.forms import key, object_form
from hostcore.job.json_values import to_plain
from hostcore.job.names import BUILTIN, PluginName, without_builtin
from hostcore_builtin_plugins.control_characters import visible
from hostcore_hookspecs.errors import HostcoreError

Text = Annotated[str, MinLen(1)]


@attrs.frozen(kw_only=True)
class ComponentUse:
    """One use of a plugin: ``"name"``, or ``{"use": "name", ...}`` with its settings beside it."""

    use: PluginName = attrs.field(metadata={"shorthand": True, "help": "The plugin."})
    #: As the job gives them; structured when the plugin is imported.
    settings: Mapping[str, Any] = attrs.field(factory=dict, metadata={"rest": True})


@attrs.frozen(kw_only=True)
class DeliveryUse(ComponentUse):
    """One use of a reporter or an uploader."""

    required: bool = key("Whether the run fails at its end if this could not deliver everything.", default=False)


@attrs.frozen(kw_only=True)
class InputSpec:
    """Something that the trainer gets as a local path: ``"reference"``, or an object with more keys."""

    ref: Text | None = attrs.field(
        default=None,
        metadata={"shorthand": True, "help": "A reference that the resolvers know, a URI, or a path of this machine."},
    )
    uri: Text | Mapping[str, Any] | None = key("A URI or a path, which no resolver is asked about.", default=None)
    sha256: Annotated[str, Pattern("[0-9a-f]{64}", "a SHA-256: 64 hexadecimal digits", str.lower)] | None = key(
        "What the content of the file must have.", default=None
    )
    storage_options: Mapping[str, Any] | None = key(
        "For the file system of the URI, as fsspec takes them.", default=None
    )

    def __attrs_post_init__(self) -> None:
        if (self.ref is None) == (self.uri is None):
            raise HostcoreError(
                'an input has either "ref" or "uri"', code="key.missing", pointer="", hint='give one of them: "uri"'
            )
        if isinstance(self.uri, Mapping) and set(self.uri) != {"$secret"}:
            raise HostcoreError("expected a string or a reference to a secret", code="value.type", pointer="/uri")


_SOURCE: Final = {"help": "The data source.", "default": "`parquet` when `parquet_paths` is given"}


def _source(data: "PartSpec | DatasetSpec") -> str:
    """Return the source of data that names none."""
    if getattr(data, "fraction", None) is not None:
        _refuse_fraction()
    if "parquet_paths" in data.settings:
        return f"{BUILTIN}parquet"
    if getattr(data, "of", None):
        return f"{BUILTIN}mix"
    raise HostcoreError(
        'the dataset names no source: expected "source" or "parquet_paths"',
        code="key.missing",
        pointer="/source",
        hint='give "parquet_paths", or name the data source: "source": "arrow"',
    )


def _refuse_fraction() -> NoReturn:
    raise HostcoreError(
        "a fraction of the training data is for the validation and the test of a job that has a dataset itself",
        code="value.invalid",
        pointer="/fraction",
        hint="name the data, or give the job a dataset",
    )


@attrs.frozen(kw_only=True)
class PartSpec:
    """Data that a mixture draws from: the host's keys, and all others for its source."""

    settings: Mapping[str, Any] = attrs.field(factory=dict, metadata={"rest": True})
    name: Annotated[str, Pattern("[A-Za-z0-9][A-Za-z0-9._-]*", "a name of letters, digits, '.', '_' and '-'")] = (
        attrs.field(metadata={"help": "What it is called in messages."})
    )
    weight: Annotated[float, Gt(0)] = key("Its share of the rows, beside the weights of the others.", default=1.0)
    source: PluginName = attrs.field(metadata=_SOURCE, default=attrs.Factory(_source, takes_self=True))


@attrs.frozen(kw_only=True)
class DatasetSpec:
    """Data to train, validate or test on: the host's keys, and all others for the source."""

    settings: Mapping[str, Any] = attrs.field(factory=dict, metadata={"rest": True})
    of: Annotated[tuple[PartSpec, ...], MinLen(1)] | None = key(
        "What the source `mix` draws its rows from.", default=None, shown="data of the source's own"
    )
    fraction: Annotated[float, Gt(0), Lt(1)] | None = key(
        "Of `validation` and `test`, in place of data: hold so much of the training data out, by a hash of each row.",
        default=None,
    )
    source: PluginName = attrs.field(
        metadata={**_SOURCE, "default": f"{_SOURCE['default']}, `mix` with `of`"},
        default=attrs.Factory(_source, takes_self=True),
    )
    batch_size: Annotated[int, Ge(1)] = key("Rows per rank and micro-batch.", default=32)
    readahead: Annotated[int, Ge(0)] = key("Windows to read ahead of the loop, if memory allows; 0: none.", default=2)
    columns: tuple[str, ...] = key("The columns to read, in this order.", default=(), shown="all")
    shuffle: bool = key("Shuffle anew in every epoch, as a pure function of the seed.", default=False)
    workers: Annotated[int, Ge(0)] = key("Processes that run `transform_batch` ahead of the loop.", default=0)
    lanes: Annotated[int, Ge(1)] | None = key(
        "Places of the data that a shuffled batch draws from at once.",
        default=None,
        shown="the largest of 24, 12, 8, 4, 2, 1 not above a quarter of the shards",
    )
    shuffle_window: Annotated[int, Ge(1)] = key("Rows that are shuffled together, over all lanes.", default=131_072)
    window_bytes: Annotated[int, Ge(1)] = key(
        "Bytes that a window may take in memory; makes it smaller.", default=64 * 1024 * 1024
    )
    hash_range: tuple[float, float] | None = key(
        "Rows whose hash, from 0 to 1, is in this range: what `fraction` stands for.", default=None, shown="all rows"
    )

    @fraction.validator
    def _resolved(self, _attribute: "attrs.Attribute[Any]", fraction: float | None) -> None:
        if fraction is not None:  # of a dataset, or of one that a trainer brings
            _refuse_fraction()

    @hash_range.validator
    def _within(self, _attribute: "attrs.Attribute[Any]", ends: tuple[float, float] | None) -> None:
        if ends is not None and not 0 <= ends[0] < ends[1] <= 1:
            message = f"{list(ends)} is no range of 0 to 1"
            raise HostcoreError(message, code="value.invalid", pointer="/hash_range", hint="for example [0, 0.95]")

    @of.validator
    def _each_part_once(self, _attribute: "attrs.Attribute[Any]", parts: Sequence[PartSpec] | None) -> None:
        names = [part.name for part in parts or ()]
        for index, part in enumerate(parts or ()):
            if part.name in names[:index]:
                message, pointer = f'"{part.name}" is the name of two parts', f"/of/{index}/name"
                raise HostcoreError(message, code="value.invalid", pointer=pointer, hint="give each a name of its own")
            if "of" in part.settings:
                hint = "list the parts of both in one, with their weights multiplied"
                message, pointer = "a mixture cannot be part of another one", f"/of/{index}/of"
                raise HostcoreError(message, code="value.invalid", pointer=pointer, hint=hint)

    def part(self, part: PartSpec) -> "DatasetSpec":
        """Return a part as data of its own: with its source and its settings, and the keys of the whole."""
        return attrs.evolve(self, of=None, source=part.source, settings=part.settings)

    @property
    def arrow_path(self) -> str:
        """The one place of data in Arrow IPC: a file, a folder, a pattern or a URI. Empty for other data."""
        paths = self.settings.get("paths") if without_builtin(self.source) == "arrow" else None
        path = paths[0] if isinstance(paths, Sequence) and len(paths) == 1 else paths
        return path if isinstance(path, str) else ""

    @columns.validator
    def _each_column_once(self, _attribute: "attrs.Attribute[Sequence[str]]", columns: Sequence[str]) -> None:
        for index, column in enumerate(columns):
            if column in columns[:index]:
                raise HostcoreError(f'"{column}" is listed twice', code="value.invalid", pointer=f"/columns/{index}")

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, the source's settings among the host's keys; what ``open_dataset`` gets."""
        return dict(to_plain(self))


@attrs.frozen(kw_only=True)
class EnvironmentSpec:
    """An environment of the job's own: built from requirements or a lock, or one that exists."""

    requirements: tuple[Text, ...] = key(
        "What to install, as pip takes it: `my-trainer>=2`. For a worker, hostcore itself is added.", default=()
    )
    indexes: tuple[Text, ...] = key(
        "Package indexes that are asked for them before the one that uv is configured with.", default=()
    )
    lock: Text | None = key(
        "A `pylock.toml` (PEP 751) or `uv.lock` to install from, in place of `requirements`.", default=None
    )
    python: Text | None = key("The version of Python to build it with: `3.12`.", default=None, shown="that of hostcore")
    interpreter: Text | None = key(
        "The Python of an environment that exists; for a worker, it has hostcore. Nothing is written there.",
        default=None,
    )
    used_by: Literal["worker", "programs"] = key(
        "`worker`: it runs there, with the trainer, the data source and callbacks. `programs`: those that it "
        "starts do, as the trainer `process` does; `python` is then the one of the environment.",
        default="worker",
    )

    @requirements.validator
    def _no_options(self, _attribute: "attrs.Attribute[Sequence[str]]", requirements: Sequence[str]) -> None:
        for index, requirement in enumerate(requirements):
            if visible(requirement, one_line=True) != requirement or requirement.rstrip().endswith("\\"):
                raise HostcoreError(
                    f"{requirement!r} is no requirement in one line: it has a control character or a line separator",
                    code="value.invalid",
                    pointer=f"/requirements/{index}",
                    hint="give each requirement as an element of its own",
                )
            if requirement.lstrip().startswith("-"):
                raise HostcoreError(
                    f"{requirement!r} is an option, and no requirement",
                    code="value.invalid",
                    pointer=f"/requirements/{index}",
                    hint="options are uv's: set UV_DEFAULT_INDEX, UV_INDEX, UV_FIND_LINKS, UV_CONSTRAINT",
                )

    @indexes.validator
    def _addresses(self, _attribute: "attrs.Attribute[Sequence[str]]", indexes: Sequence[str]) -> None:
        if indexes and not self.requirements:
            raise HostcoreError(
                "there are no requirements to ask an index for",
                code="value.invalid",
                pointer="/indexes",
                hint="remove the key; a lock names its files itself",
            )
        for at, index in enumerate(indexes):
            if re.search(r"\s|^-|//[^/]*@", index):
                raise HostcoreError(
                    "it is no address of an index, or one with credentials in it",
                    code="value.invalid",
                    pointer=f"/indexes/{at}",
                    hint="such as https://download.pytorch.org/whl/cpu; uv takes credentials from a .netrc",
                )

    @interpreter.validator
    def _in_one_way(self, _attribute: "attrs.Attribute[str | None]", interpreter: str | None) -> None:
        given = [key for key in ("requirements", "lock", "interpreter") if getattr(self, key)]
        if len(given) != 1:
            told = f"has {' and '.join(given)}" if given else "has neither requirements, lock nor interpreter"
            raise HostcoreError(f"the environment {told}", code="value.invalid", hint="give one of the three")
        if interpreter and self.python:
            raise HostcoreError(
                "the interpreter has its own version of Python",
                code="value.invalid",
                pointer="/python",
                hint="remove the key",
            )


@attrs.frozen(kw_only=True)
class ResourcesSpec:
    """Resources that a launcher asks its engine for."""

    num_nodes: Annotated[int, Ge(1)] = key("Machines.", default=1)
    gpus_per_node: Annotated[int, Ge(0)] = key("GPUs on each machine.", default=0)
    cpus_per_node: Annotated[float, Gt(0)] | None = key("CPU cores on each machine.", default=None)
    memory_per_node_gb: Annotated[float, Gt(0)] | None = key("Memory of each machine, in GB.", default=None)
    image: Text | None = key("Container image.", default=None)
    namespace: Text | None = key("Kubernetes namespace, or Slurm account.", default=None)
    env: Mapping[str, str] = key("Environment variables.", factory=dict)


def dataset_keys() -> tuple[str, ...]:
    """The keys of a dataset that the host reads; suggested when a key of the source's is mistyped."""
    return tuple(object_form(DatasetSpec).keys)
