"""The model and the tokenizer that a job names, with one clear error for each of the usual mistakes.

Code of a model's folder or of the Hub never runs, and nobody is asked about it: neither that of ``auto_map``, nor
kernels, nor what a quantization or an adapter loads.
"""

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs import InvalidSettings, StepContext
from hostcore_transformers.adapters import CONFIGURATION, with_adapters_of, with_new_adapters
from hostcore_transformers.hyperparams import Hyperparams
from hostcore_transformers.layout import LayoutNotKept, check_layout
from hostcore_transformers.templates import set_template

if TYPE_CHECKING:
    from hostcore_transformers.tasks import Task

#: Files of this machine, and the code of transformers alone; None would ask on standard input.
_CLOSED: Final = {"local_files_only": True, "trust_remote_code": False}
#: Implementations that transformers has in itself, by the key of a configuration; others are kernels of a repository.
_OWN: Final[dict[str, set[str | None]]] = {
    "attn_implementation": {None, "eager", "sdpa", "flex_attention"},
    "experts_implementation": {None, "eager", "batched_mm", "grouped_mm"},
}
#: Without the package flash-attn, transformers takes a kernel of a repository for it.
_FLASH: Final = "flash_attention_2"
#: Keys of a configuration that have other libraries or a repository's code loaded.
_LOADING: Final = {"quantization_config", "kernel_config", "use_kernels", "custom_generate"}


def model_folder(hyperparams: Hyperparams, handles: Mapping[str, Any]) -> Path | None:
    """Return the model's folder: the setting, the input ``model``, or ``weights``. None: it is made from ``config``.

    :raises InvalidSettings: When there is nothing, or no model in the folder.
    """
    if hyperparams.config:
        return None
    given = hyperparams.model or handles.get("model") or handles.get("weights")
    if given is None:
        raise InvalidSettings(
            "/model",
            "the job names no model",
            hint='give "model" (a folder), "config" (a model with new weights), or an input "model"',
        )
    folder = Path(given)
    if (folder / CONFIGURATION).is_file() and not (folder / "config.json").is_file():
        hint = 'name it in "adapter", and the model that it was trained on in "model"'
        raise InvalidSettings("/model", f"{folder} has an adapter, and no model", hint=hint)
    return _folder(folder, "/model", "config.json", "a model, as save_pretrained writes it")


def load_tokenizer(hyperparams: Hyperparams, handles: Mapping[str, Any]) -> Any:
    """The tokenizer, with a token to pad with.

    :raises InvalidSettings: When there is none, or it cannot be used for the task.
    """
    from transformers import AutoTokenizer

    named = hyperparams.tokenizer or handles.get("tokenizer")
    pointer = "/tokenizer" if hyperparams.tokenizer else "/model"
    folder = Path(named) if named else model_folder(hyperparams, handles)
    if folder is None:
        raise InvalidSettings(
            "/tokenizer", "a model from a config needs one", hint='name the folder of a tokenizer in "tokenizer"'
        )
    _folder(folder, pointer, "tokenizer_config.json", "a tokenizer, as save_pretrained writes it")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **_CLOSED)
        if hyperparams.task == "token-classification" and _joins_words(tokenizer):
            tokenizer = AutoTokenizer.from_pretrained(folder, **_CLOSED, add_prefix_space=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise InvalidSettings(
            pointer, f"the tokenizer in {folder} cannot be loaded: {_first_line(error)}", hint=_hint(error)
        ) from error
    tokenizer.add_tokens(list(hyperparams.special_tokens), special_tokens=True)
    if hyperparams.chat_template is not None:
        set_template(tokenizer, hyperparams.chat_template)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token_id is None:
        message = f"the tokenizer in {folder} has no token to pad with, and none for the end of a text"
        raise InvalidSettings(pointer, message, hint="set its pad_token and save it again")
    if hyperparams.learn_from == "answers" and not tokenizer.is_fast:
        message = f"the tokenizer in {folder} does not know where in a text its tokens are, so answers cannot be found"
        raise InvalidSettings(
            "/learn_from", message, hint='save it as tokenizer.json (a fast one), or learn from "all"'
        )
    if hyperparams.messages_column and not tokenizer.chat_template:
        message = f"the tokenizer in {folder} has no chat template"
        raise InvalidSettings(
            "/messages_column", message, hint='name one in "chat_template", or give the text as text_column'
        )
    return tokenizer


def load_processor(hyperparams: Hyperparams, handles: Mapping[str, Any], *, auto: str, **options: Any) -> Any:
    """Load what makes tensors of images or audio.

    :param auto: The class of transformers that finds it.
    :param options: Of its ``from_pretrained``.
    :raises InvalidSettings: When there is none, or it cannot be loaded.
    """
    import transformers

    named = hyperparams.processor or handles.get("processor")
    pointer = "/processor" if hyperparams.processor else "/model"
    folder = Path(named) if named else model_folder(hyperparams, handles)
    if folder is None:
        message = f"a model from a config needs a processor ({auto})"
        raise InvalidSettings("/processor", message, hint='name the folder of one in "processor"')
    if not (folder / "processor_config.json").is_file():  # of a whole processor, with a tokenizer
        _folder(folder, pointer, "preprocessor_config.json", "a processor, as save_pretrained writes it")
    try:
        return getattr(transformers, auto).from_pretrained(folder, **options, **_CLOSED)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        message = f"the processor in {folder} cannot be loaded by {auto}: {_first_line(error)}"
        missing = install_command("transformers") if isinstance(error, ImportError) else None
        hint = _hint(error) or missing or "use that of a model for this task"
        raise InvalidSettings(pointer, message, hint=hint) from error


def _joins_words(tokenizer: Any) -> bool:
    """Return whether a list of words has no spaces between them unless the tokenizer is asked for these."""
    return "add_prefix_space" in inspect.signature(type(tokenizer).__init__).parameters


def build_model(hyperparams: Hyperparams, task: "Task", ctx: StepContext) -> Any:
    """The model for the task, on the CPU, with adapters if the job wants them.

    :raises InvalidSettings: When it cannot be made, or does not fit the tokenizer.
    """
    import transformers

    auto, tokenizer = getattr(transformers, task.auto), task.processors.tokenizer
    folder = model_folder(hyperparams, ctx.model_handles)
    pointer = "/config" if folder is None else "/model"
    _refuse_code(hyperparams, folder)
    extra = task.model_settings()
    attention = {"attn_implementation": hyperparams.attention} if hyperparams.attention else {}
    new: list[str] = []
    try:
        if folder is None:
            given = _with_ends(hyperparams.config, tokenizer)
            config = transformers.AutoConfig.for_model(given.pop("model_type"), **given, **extra)
            config.architectures = []  # with None, transformers finds no class where a task has several (DeiT)
            model = auto.from_config(config, trust_remote_code=False, **attention)
        else:
            head = {"ignore_mismatched_sizes": True} if hyperparams.new_head else {}
            model, found = auto.from_pretrained(
                folder, **_CLOSED, dtype="float32", output_loading_info=True, **head, **extra, **attention
            )
            _check_head(found["mismatched_keys"], task, pointer)
            new = _new_weights(model, found, folder, task, ctx)
    except (OSError, ValueError, TypeError, KeyError, ImportError, RuntimeError, AssertionError) as error:
        hint = _hint(error)
        if hint is None and "Unrecognized configuration class" in str(error):
            hint = _tasks_that_fit(hyperparams, task, folder)
        if "ignore_mismatched_sizes" in str(error):
            error = ValueError(f"the weights in {folder} have other shapes, or another number of classes")
            hint = 'see that "num_labels" is that of the model, or set "new_head" to learn other classes'
        raise InvalidSettings(
            pointer, f"transformers cannot make this model: {_first_line(error)}", hint=hint
        ) from error
    if task.name == "causal-lm" and any(".encoder_attn." in name for name, _ in model.named_parameters()):
        ctx.warn(
            f"{type(model).__name__} is the decoder of an encoder-decoder: the encoder is neither trained nor stored; "
            'the task "seq2seq" trains both'
        )
    model.config.architectures = [type(model).__name__]  # as save_pretrained writes it
    if tokenizer is not None:
        new += _with_special_tokens(model, tokenizer, hyperparams)
        _check_vocabulary(model, tokenizer, pointer)
        _check_length(model, hyperparams.max_length)
        model.config.pad_token_id = tokenizer.pad_token_id  # a classifier scores the last token that is not this one
    _freeze(model, hyperparams.frozen)
    _with_router_loss(model, hyperparams.router_loss)
    task.check_model(model, pointer)
    if hyperparams.lora is None and _adapter(hyperparams, ctx.model_handles) is None:
        _check_checkpoints(model, pointer)
    if hyperparams.gradient_checkpointing:
        model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
        model.config.use_cache = False
    if hyperparams.lora is not None:
        return with_new_adapters(model, hyperparams.lora, task, new)
    adapter = _adapter(hyperparams, ctx.model_handles)
    return model if adapter is None else with_adapters_of(model, adapter, new)


def _adapter(hyperparams: Hyperparams, handles: Mapping[str, Any]) -> Path | None:
    """Return the folder with the adapter to go on from: the setting, or the input ``adapter``."""
    named = hyperparams.adapter or handles.get("adapter")
    return Path(named) if named else None


def _with_ends(config: Mapping[str, Any], tokenizer: Any) -> dict[str, Any]:
    """Complete a configuration, or that of the text in it, with the tokens that begin and end a text."""
    from transformers import CONFIG_MAPPING

    if tokenizer is None:
        return dict(config)
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    kind = config["model_type"]
    if kind in CONFIG_MAPPING and "text_config" in CONFIG_MAPPING[kind].sub_configs:
        return {**config, "text_config": {**ends, **config.get("text_config", {})}}
    return {**ends, **config}


def _new_weights(model: Any, found: Mapping[str, Any], folder: Path, task: "Task", ctx: StepContext) -> list[str]:
    """Return the names of the parameters that are not in the folder, and warn of those that are not of the head."""
    parameters = {name for name, _ in model.named_parameters()}
    new = parameters & {*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])}
    if new == parameters:
        message = (
            f"none of the {len(new)} tensors of {type(model).__name__} is in {folder}: its weights have other names"
        )
        raise InvalidSettings("/model", message, hint="see that config.json and the weights are of the same model")
    if wrong := sorted(name for name in new if not set(task.head) & set(name.split("."))):
        ctx.warn(
            f"{len(wrong)} of {len(parameters)} tensors of {type(model).__name__} are not in {folder}, and begin with "
            f"new weights: {', '.join(wrong[:3])}{' …' if wrong[3:] else ''}"
        )
    return sorted(new)


def _check_head(changed: Iterable[Sequence[Any]], task: "Task", pointer: str) -> None:
    """See that no other weights than those of the head were made anew."""
    lost = [name for name, *_ in changed if not any(part in task.head for part in name.split("."))]
    if lost:
        message = f"the weights of {min(lost)} have another shape than the configuration says, and are not of the head"
        raise InvalidSettings(pointer, message, hint="correct its config.json")


def _tasks_that_fit(hyperparams: Hyperparams, task: "Task", folder: Path | None) -> str:
    from transformers import AutoConfig

    kind = hyperparams.config["model_type"] if folder is None else _document(folder / "config.json")["model_type"]
    fitting = task.fitting(AutoConfig.for_model(kind))
    if not fitting:
        return f"this trainer has no task for {kind!r}; write a trainer of your own"
    return f'its model is not one for "{task.name}"; tasks for {kind!r}: {", ".join(fitting)}'


def _refuse_code(hyperparams: Hyperparams, folder: Path | None) -> None:
    """Refuse settings that have code loaded from elsewhere than the installed transformers."""
    if hyperparams.attention == _FLASH and not _has_flash_attention():
        message = "flash_attention_2 needs the package flash-attn and a GPU that it supports"
        raise InvalidSettings("/attention", message, hint='install flash-attn, or use "sdpa"')
    if folder is None:
        for key in _keys_with_code(hyperparams.config):
            raise InvalidSettings(f"/config/{key}", f"{_REFUSED}: {key}", hint=_REMEDY)
        return
    if (folder / CONFIGURATION).exists():
        message = f"{folder} has an adapter beside the model (adapter_config.json)"
        raise InvalidSettings("/model", message, hint="merge it into the weights first (peft: merge_and_unload)")
    for file in ("config.json", "generation_config.json"):
        for key in _keys_with_code(_document(folder / file)):
            raise InvalidSettings("/model", f"{_REFUSED}: {key} in {folder / file}", hint=_REMEDY)


_REFUSED: Final = "this trainer runs code of the installed transformers alone, and loads no kernels or quantizations"
_REMEDY: Final = 'remove it; "attention" chooses how attention is computed'


def _has_flash_attention() -> bool:
    from transformers.utils.import_utils import is_flash_attn_2_available

    return bool(is_flash_attn_2_available())


def _document(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None  # transformers reports it


def _keys_with_code(document: Any) -> Iterator[str]:
    """Yield the keys, with ``/`` between levels, that :func:`_refuse_code` refuses."""
    for key, value in document.items() if isinstance(document, Mapping) else ():
        if own := _OWN.get(key.removesuffix("_internal").removeprefix("_")):
            own = own | {_FLASH} if _has_flash_attention() else own
            if not own.issuperset(_leaves(value)):
                yield key
        elif key in _LOADING:
            if value not in (None, False):
                yield key
        else:
            yield from (f"{key}/{below}" for below in _keys_with_code(value))


def _leaves(value: Any) -> Iterator[str | None]:
    """Yield an implementation, or those of the parts of a model."""
    if isinstance(value, Mapping):
        for below in value.values():
            yield from _leaves(below)
    else:
        yield value if value is None else str(value)


def _with_special_tokens(model: Any, tokenizer: Any, hyperparams: Hyperparams) -> list[str]:
    """Embed the tokens that the tokenizer has got, and return the names of the tensors that have become larger."""
    size = model.get_input_embeddings().num_embeddings if hyperparams.special_tokens else len(tokenizer)
    if not size < len(tokenizer) <= size + len(hyperparams.special_tokens):
        return []
    model.resize_token_embeddings(len(tokenizer))
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    return [f"{name}.weight" for name, one in model.named_modules() if any(one is end for end in ends)]


def _check_vocabulary(model: Any, tokenizer: Any, pointer: str) -> None:
    try:
        size = getattr(model.get_input_embeddings(), "num_embeddings", None)
    except NotImplementedError:  # of a model that reads no text, and of several
        size = None
    size = size or int(model.config.get_text_config().vocab_size)
    if len(tokenizer) > size:
        raise InvalidSettings(
            f"{pointer}/vocab_size" if pointer == "/config" else pointer,
            f"the tokenizer has {len(tokenizer):,} tokens, and the model embeds {size:,}",
            hint="use the model's own tokenizer, or a model with a larger vocab_size",
        )


def _check_length(model: Any, length: int) -> None:
    config = model.config.get_text_config()
    places = ("max_position_embeddings", "max_target_positions")
    longest: int | None = next((getattr(config, one) for one in places if hasattr(config, one)), None)
    for name, one in model.named_modules():
        if name.endswith("position_embeddings") and getattr(one, "padding_idx", None) is not None:
            longest = one.num_embeddings - one.padding_idx - 1  # as in RoBERTa, the first position comes after padding
    if longest is not None and 0 < longest < length:
        message = f"it is {length}, and the model takes {longest} tokens at the most"
        raise InvalidSettings("/max_length", message, hint=f'set "max_length" to {longest} or less')


def _check_checkpoints(model: Any, pointer: str) -> None:
    """Refuse architectures that transformers could not read from a checkpoint again."""
    try:
        check_layout(model)
    except (LayoutNotKept, RuntimeError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise InvalidSettings(
            pointer,
            f"transformers cannot write {type(model).__name__} so that it reads it again: {_first_line(error)}",
            hint='train adapters ("lora"), or another architecture',
        ) from error


def _with_router_loss(model: Any, coefficient: float | None) -> None:
    """Have a mixture of experts compute its router's loss, as if its configuration asked for it."""
    if coefficient is None:
        return
    config = model.config.get_text_config()
    if not hasattr(config, "output_router_logits") or not hasattr(config, "router_aux_loss_coef"):
        message = f"{type(model).__name__} has no loss of a router"
        raise InvalidSettings(
            "/router_loss", message, hint="remove it: it is for some mixtures of experts, such as Mixtral"
        )
    config.output_router_logits = True
    config.router_aux_loss_coef = coefficient
    if hasattr(model, "router_aux_loss_coef"):
        model.router_aux_loss_coef = coefficient


def _freeze(model: Any, patterns: Sequence[str]) -> None:
    """Leave the parameters as they are in whose name one of the patterns is found."""
    for at, pattern in enumerate(patterns):
        pointer = f"/frozen/{at}"
        try:
            found = [one for name, one in model.named_parameters() if re.search(pattern, name)]
        except re.error as error:
            raise InvalidSettings(pointer, f"{pattern!r} is no regular expression: {error}") from error
        if not found:
            hint = f"they are called like {', '.join(name for name, _ in list(model.named_parameters())[:3])}"
            raise InvalidSettings(pointer, f"{pattern!r} is in no parameter's name", hint=hint)
        for one in found:
            one.requires_grad_(False)
    if not any(one.requires_grad for one in model.parameters()):
        raise InvalidSettings("/frozen", "nothing is left to be trained", hint="name fewer parameters")


def _folder(folder: Path, pointer: str, file: str, what: str) -> Path:
    if not (folder / file).is_file():
        missing = f"it has no {file}" if folder.is_dir() else "there is no such folder"
        raise InvalidSettings(
            pointer,
            f"{folder} is not {what}: {missing}",
            hint="download it first (hf download --local-dir), or name it in the job's inputs",
        )
    return folder


def _hint(error: BaseException) -> str | None:
    """Replace the advice of transformers to trust the code of a folder."""
    if "trust_remote_code" not in str(error):
        return None
    return "code of a model's folder is never run: use an architecture of transformers, or write a trainer of your own"


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
