"""The model and the tokenizer that a job names, with one clear error for each of the usual mistakes."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hostcore_hookspecs import InvalidSettings, StepContext
from hostcore_transformers.hyperparams import Hyperparams, Lora

#: By task: the class of transformers that finds the architecture's.
_CLASSES: Final = {
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "sequence-classification": "AutoModelForSequenceClassification",
}


def model_folder(hyperparams: Hyperparams, handles: Mapping[str, Any]) -> Path | None:
    """Where the model is: the setting, the input ``model``, or the job's ``weights``. None: it is made from ``config``.

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
    return _folder(Path(given), "/model", "config.json", "a model, as save_pretrained writes it")


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
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise InvalidSettings(pointer, f"the tokenizer in {folder} cannot be loaded: {_first_line(error)}") from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token_id is None:
        message = f"the tokenizer in {folder} has no token to pad with, and none for the end of a text"
        raise InvalidSettings(pointer, message, hint="set its pad_token and save it again")
    if hyperparams.task == "masked-lm" and tokenizer.mask_token_id is None:
        message = f"the tokenizer in {folder} has no mask token, which masked-lm needs"
        raise InvalidSettings(pointer, message, hint="set its mask_token, or choose another task")
    if hyperparams.messages_column and not tokenizer.chat_template:
        message = f"the tokenizer in {folder} has no chat template"
        raise InvalidSettings(
            "/messages_column", message, hint="set its chat_template, or give the text as text_column"
        )
    return tokenizer


def build_model(hyperparams: Hyperparams, tokenizer: Any, ctx: StepContext) -> Any:
    """The model for the task, on the CPU, with adapters if the job wants them.

    :raises InvalidSettings: When it cannot be made, or does not fit the tokenizer.
    """
    import transformers

    auto = getattr(transformers, _CLASSES[hyperparams.task])
    folder = model_folder(hyperparams, ctx.model_handles)
    pointer = "/config" if folder is None else "/model"
    extra = {}
    if hyperparams.task == "sequence-classification":
        extra = {"num_labels": hyperparams.num_labels, "problem_type": "single_label_classification"}
    attention = {"attn_implementation": hyperparams.attention} if hyperparams.attention else {}
    try:
        if folder is None:
            ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
            given = {**ends, **hyperparams.config}
            config = transformers.AutoConfig.for_model(given.pop("model_type"), **given, **extra)
            model = auto.from_config(config, **attention)
        else:
            model = auto.from_pretrained(folder, local_files_only=True, dtype="float32", **extra, **attention)
    except (OSError, ValueError, TypeError, KeyError, ImportError, RuntimeError) as error:
        raise InvalidSettings(pointer, f"transformers cannot make this model: {_first_line(error)}") from error
    _check_vocabulary(model, tokenizer, pointer)
    _check_length(model, hyperparams.max_length)
    if hyperparams.lora is None:
        _check_names(model, pointer)
    model.config.pad_token_id = tokenizer.pad_token_id  # a classifier scores the last token that is not this one
    if hyperparams.gradient_checkpointing:
        model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
        model.config.use_cache = False
    return _with_adapters(model, hyperparams.lora, hyperparams.task) if hyperparams.lora else model


def _check_vocabulary(model: Any, tokenizer: Any, pointer: str) -> None:
    size: int = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > size:
        raise InvalidSettings(
            f"{pointer}/vocab_size" if pointer == "/config" else pointer,
            f"the tokenizer has {len(tokenizer):,} tokens, and the model embeds {size:,}",
            hint="use the model's own tokenizer, or a model with a larger vocab_size",
        )


def _check_length(model: Any, length: int) -> None:
    longest: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    for name, one in model.named_modules():
        if name.endswith("position_embeddings") and getattr(one, "padding_idx", None) is not None:
            longest = one.num_embeddings - one.padding_idx - 1  # as in RoBERTa, the first position comes after padding
    if longest is not None and 0 < longest < length:
        message = f"it is {length}, and the model takes {longest} tokens at the most"
        raise InvalidSettings("/max_length", message, hint=f'set "max_length" to {longest} or less')


def _check_names(model: Any, pointer: str) -> None:
    """Refuse architectures whose weights are converted when they are saved: a checkpoint has them as they are."""
    from transformers.conversion_mapping import get_model_conversion_mapping

    if get_model_conversion_mapping(model, add_legacy=False):
        raise InvalidSettings(
            pointer,
            f"{type(model).__name__} has other weights in memory than on the disk, which this trainer does not convert",
            hint='train adapters ("lora"), or another architecture',
        )


def _with_adapters(model: Any, lora: Lora, task: str) -> Any:
    try:
        peft: Any = importlib.import_module("peft")
    except ImportError as error:
        hint = "pip install 'hostcore-transformers[lora]'"
        raise InvalidSettings("/lora", "adapters need peft, which is not installed", hint=hint) from error
    kinds = {"causal-lm": "CAUSAL_LM", "sequence-classification": "SEQ_CLS"}
    config = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(lora.target_modules) or None,
        task_type=kinds.get(task),
    )
    try:
        return peft.get_peft_model(model, config)
    except ValueError as error:
        raise InvalidSettings("/lora/target_modules", _first_line(error)) from error


def _folder(folder: Path, pointer: str, file: str, what: str) -> Path:
    if not (folder / file).is_file():
        missing = f"it has no {file}" if folder.is_dir() else "there is no such folder"
        raise InvalidSettings(
            pointer,
            f"{folder} is not {what}: {missing}",
            hint="download it first (hf download --local-dir), or name it in the job's inputs",
        )
    return folder


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
