"""The trainers ``hf`` and ``meta``: the trainer ``transformers``, in the words of the unified trainer API."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import attrs
from annotated_types import Ge, Gt
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError

from hostcore_hookspecs import HostcoreError, InvalidSettings, StepContext, Uri
from hostcore_transformers.hyperparams import Hyperparams as Settings
from hostcore_transformers.hyperparams import Lora
from hostcore_transformers.trainer import State, TransformersTrainer

#: What the trainer ``transformers`` calls otherwise.
_WORDS: Final = {
    "dataset_text_field": "text_column",
    "lr": "learning_rate",
    "max_seq_len": "max_length",
    "model_id": "model",
    "tokenizer_name": "tokenizer",
}
_WRITTEN: Final = {theirs: word for word, theirs in _WORDS.items()}
#: What architectures call the longest text that they take.
_LONGEST: Final = ("max_position_embeddings", "n_positions")
_DEFAULT_LENGTH: Final = 2048
_LLAMAS: Final = ("llama", "llama4_text")


@attrs.frozen(kw_only=True)
class HfHyperparams:
    """The job's ``hyperparams``, for ``hf``."""

    model_id: Uri = attrs.field(
        metadata={
            "help": "A model's folder, as an absolute path, or a model's name in this machine's Hugging Face cache. "
            "With an input `model`, that is the model, and this is its name."
        }
    )
    tokenizer_name: Uri = attrs.field(
        default="", metadata={"help": "As `model_id`. Empty: the input `tokenizer`, or the model's own."}
    )
    dataset_text_field: str = attrs.field(default="text", metadata={"help": "The column with the text."})
    max_seq_len: Annotated[int, Gt(1)] | None = attrs.field(
        default=None,
        metadata={"help": "Tokens of a text; longer ones are cut. None: 2048, or fewer where the model takes no more."},
    )
    lr: Annotated[float, Gt(0)] = attrs.field(
        default=5e-5, metadata={"help": "The learning rate of AdamW, at its highest."}
    )
    weight_decay: Annotated[float, Ge(0)] = attrs.field(
        default=0.0, metadata={"help": "Of all parameters but biases and those of normalizations."}
    )
    warmup_steps: Annotated[int, Ge(0)] = attrs.field(
        default=0, metadata={"help": "Steps in which the learning rate rises from 0."}
    )

    # Beyond the original, as the trainer `transformers` has them.
    schedule: Literal["linear", "cosine", "constant", "constant_with_warmup"] = attrs.field(
        default="linear", metadata={"help": "How the learning rate falls after the warm-up."}
    )
    max_grad_norm: Annotated[float, Ge(0)] = attrs.field(
        default=1.0, metadata={"help": "The norm that gradients are scaled down to; 0: never."}
    )
    packing: bool | Literal["texts"] = attrs.field(
        default=False,
        metadata={
            "help": "`texts`: the whole texts of a batch in few rows of at most `max_seq_len`. True: texts one after "
            "the other, cut into blocks of `max_seq_len`."
        },
    )
    gradient_checkpointing: bool = attrs.field(default=False, metadata={"help": "Less memory, more time."})
    attention: Literal["eager", "sdpa", "flash_attention_2"] | None = attrs.field(
        default=None, metadata={"help": "How attention is computed. None: as transformers chooses."}
    )
    lora: Lora | None = attrs.field(default=None, metadata={"help": "Train adapters, and leave the model as it is."})
    strategy: Literal["ddp", "fsdp2"] = attrs.field(
        default="ddp", metadata={"help": "On several ranks: the whole model on each, or a part of every parameter."}
    )


@attrs.frozen(kw_only=True)
class MetaHyperparams(HfHyperparams):
    """The job's ``hyperparams``, for ``meta``."""

    lr: Annotated[float, Gt(0)] = attrs.field(
        default=2e-5, metadata={"help": "The learning rate of AdamW, at its highest."}
    )


class HfTrainer(TransformersTrainer):
    """Fine-tunes a causal language model, as ``"framework": "hf"`` of the unified trainer API asks for it."""

    Hyperparams: ClassVar[type[Any]] = HfHyperparams
    CAPABILITIES = attrs.evolve(TransformersTrainer.CAPABILITIES, precisions=("fp32", "bf16"))  # those of the API
    #: The architectures (``model_type``) that it takes; empty: all.
    architectures: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        self._settings: Settings | None = None

    def setup(self, ctx: StepContext) -> None:
        """As ``transformers``; errors name what the job has written."""
        with _as_written():
            super().setup(ctx)

    def configure(self, ctx: StepContext) -> State:
        """As ``transformers``; errors name what the job has written."""
        with _as_written():
            return super().configure(ctx)

    def settings(self, ctx: StepContext) -> Settings:
        """Convert the job's hyperparameters to those of ``transformers``."""
        if self._settings is None:
            self._settings = self._translated(ctx.hyperparams, ctx.model_handles)
        return self._settings

    def _translated(self, written: HfHyperparams, handles: Mapping[str, Any]) -> Settings:
        given = handles.get("model") or handles.get("weights")
        model = Path(given) if given else _folder(written.model_id, "model_id")
        values = {_WORDS.get(one.name, one.name): getattr(written, one.name) for one in attrs.fields(type(written))}
        values["model"] = model
        values["tokenizer"] = _folder(written.tokenizer_name, "tokenizer_name") if written.tokenizer_name else None
        configuration = _configuration(model)
        self._check_architecture(configuration.get("model_type"))
        values["max_length"] = _length(written.max_seq_len, configuration)
        return Settings(**values)

    def _check_architecture(self, kind: str | None) -> None:
        if self.architectures and kind is not None and kind not in self.architectures:
            raise InvalidSettings(
                "/model_id",
                f"it is a model of type {kind!r}, and this framework takes {', '.join(self.architectures)}",
                hint='the framework "hf" takes every causal language model of transformers',
            )


class MetaTrainer(HfTrainer):
    """As ``hf``, for Llama architectures: ``"framework": "meta"`` of the unified trainer API."""

    Hyperparams: ClassVar[type[Any]] = MetaHyperparams
    architectures: ClassVar[tuple[str, ...]] = _LLAMAS


def _folder(name: str, key: str) -> Path:
    """Return a model's folder: the named one, or the download of ``hf download``. Nothing is fetched."""
    if Path(name).is_absolute():
        return Path(name)
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (OSError, HFValidationError) as error:
        raise InvalidSettings(
            f"/{key}",
            f"{name!r} is no absolute path of a folder, and no model in the Hugging Face cache of this machine",
            hint=f"run `hf download {name}` on this machine, or "
            f'name a place of the model: "inputs": {{"{_WORDS[key]}": "s3://models/…"}}',
        ) from error


def _length(written: int | None, configuration: Mapping[str, Any]) -> int:
    longest: int | None = next((configuration[name] for name in _LONGEST if name in configuration), None)
    if written is not None and longest is not None and written > longest:
        raise InvalidSettings(
            "/max_seq_len", f"the model takes {longest} tokens at the most", hint=f"write {longest} or less"
        )
    return written or min(_DEFAULT_LENGTH, longest or _DEFAULT_LENGTH)


def _configuration(folder: Path) -> Mapping[str, Any]:
    """Read the model's ``config.json``; empty without one, which is reported where the model is loaded."""
    try:
        found = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _as_written() -> Iterator[None]:
    """Errors behind it name the settings as the job has them."""
    try:
        yield
    except HostcoreError as error:
        if isinstance(error, InvalidSettings) and error.pointer:
            first, slash, rest = error.pointer[1:].partition("/")
            error.pointer = f"/{_WRITTEN.get(first, first)}{slash}{rest}"
        if error.hint:
            error.hint = re.sub(r'"(\w+)"(?!:)', lambda word: f'"{_WRITTEN.get(word[1], word[1])}"', error.hint)
        raise
