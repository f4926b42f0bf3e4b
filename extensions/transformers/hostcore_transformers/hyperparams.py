"""Hyperparameters: the model, the text, the optimizer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import attrs
from annotated_types import Ge, Gt, Le, Lt

from hostcore_hookspecs import InvalidSettings

#: Of AdamW, where a job has no others.
BETAS: Final = (0.9, 0.999)
Optimizer = Literal[
    "adamw",
    "adafactor",
    "sgd",
    "rmsprop",
    "adagrad",
    "lion",
    "adamw_8bit",
    "lion_8bit",
    "paged_adamw",
    "paged_adamw_8bit",
]
ChatTemplate = Literal["chatml", "llama3", "mistral", "gemma", "zephyr"]
Schedule = Literal[
    "linear",
    "cosine",
    "cosine_with_restarts",
    "cosine_with_min_lr",
    "cosine_warmup_with_min_lr",
    "polynomial",
    "inverse_sqrt",
    "warmup_stable_decay",
    "constant",
    "constant_with_warmup",
]
Task = Literal[
    "causal-lm",
    "masked-lm",
    "seq2seq",
    "sequence-classification",
    "token-classification",
    "question-answering",
    "image-classification",
    "audio-classification",
    "ctc",
    "speech-to-text",
    "contrastive",
]
#: Tasks whose rows have labels of the kind that ``problem_type`` names.
_LABELLED = ("sequence-classification", "image-classification", "audio-classification")


@attrs.frozen(kw_only=True)
class Lora:
    """Low-rank adapters (Hu et al., arXiv:2106.09685), by peft. They alone are trained and stored."""

    #: The rank of the adapters' matrices.
    rank: Annotated[int, Gt(0)] = 8
    #: The adapters' output is scaled by ``alpha / rank``.
    alpha: Annotated[float, Gt(0)] = 16.0
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    #: Names of the layers that get adapters, as the model calls them; a regular expression of whole names;
    #: ``all-linear``: all but the output's. Empty: those that peft knows for the model.
    target_modules: tuple[str, ...] | str = ()
    #: Names of layers that are trained and stored whole beside the adapters, such as ``lm_head``.
    modules_to_save: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Hyperparams:
    """The job's ``hyperparams``."""

    task: Task = attrs.field(default="causal-lm", metadata={"help": "What the model learns."})
    model: Path | None = attrs.field(
        default=None,
        metadata={
            "help": "A folder with `config.json` and weights, as `save_pretrained` writes it. None: the input `model` "
            "of the job, or `config`."
        },
    )
    config: Mapping[str, Any] = attrs.field(
        factory=dict,
        metadata={
            "help": 'A model with new weights: `{"model_type": "llama", "hidden_size": 64}`, as transformers names it.'
        },
    )
    tokenizer: Path | None = attrs.field(
        default=None, metadata={"help": "A folder with the tokenizer. None: the model's, or the input `tokenizer`."}
    )
    new_head: bool = attrs.field(
        default=False,
        metadata={
            "help": "Of a model that has learned other classes: begin its head with new weights, and keep the rest."
        },
    )
    processor: Path | None = attrs.field(
        default=None,
        metadata={
            "help": "A folder with the processor of images or audio. None: the model's, or the input `processor`."
        },
    )
    attention: Literal["eager", "sdpa", "flash_attention_2"] | None = attrs.field(
        default=None, metadata={"help": "How attention is computed. None: as transformers chooses."}
    )
    gradient_checkpointing: bool = attrs.field(
        default=False, metadata={"help": "Compute activations again in the backward pass: less memory, more time."}
    )
    router_loss: Annotated[float, Ge(0)] | None = attrs.field(
        default=None,
        metadata={
            "help": "Of a mixture of experts: what its router's loss is multiplied by before it is added. None: as the "
            "model's configuration has it (`output_router_logits`, `router_aux_loss_coef`)."
        },
    )
    lora: Lora | None = attrs.field(default=None, metadata={"help": "Train adapters, and leave the model as it is."})

    adapter: Path | None = attrs.field(
        default=None,
        metadata={
            "help": "A folder with adapters, such as a checkpoint of `lora`: they are trained further, with their own "
            "settings. None: the input `adapter`, if there is one."
        },
    )
    frozen: tuple[str, ...] = attrs.field(
        default=(),
        metadata={"help": "Regular expressions: parameters in whose name one is found are not trained."},
    )

    text_column: str = attrs.field(default="text", metadata={"help": "The column with the text."})
    image_column: str = attrs.field(
        default="image", metadata={"help": "The column with images: files, as bytes, or pixels."}
    )
    audio_column: str = attrs.field(
        default="audio", metadata={"help": "The column with audio: waveforms, or WAV files, as bytes."}
    )
    max_seconds: Annotated[float, Gt(0)] = attrs.field(
        default=30.0,
        metadata={"help": "Of audio. `audio-classification` cuts what is longer, the other tasks refuse it."},
    )
    target_column: str = attrs.field(
        default="target", metadata={"help": "For `seq2seq`: the column with the text to be written."}
    )
    messages_column: str = attrs.field(
        default="",
        metadata={"help": "In place of text: a column of conversations, for the tokenizer's chat template."},
    )
    chat_template: ChatTemplate | Path | None = attrs.field(
        default=None,
        metadata={
            "help": "Of conversations, in place of the tokenizer's own: a name, or a file of Jinja. It is stored with "
            "the tokenizer."
        },
    )
    special_tokens: tuple[str, ...] = attrs.field(
        default=(),
        metadata={
            "help": "Tokens that the tokenizer gets, and the model embeds; their embeddings begin near the mean of the "
            "others."
        },
    )
    learn_from: Literal["all", "answers"] = attrs.field(
        default="all",
        metadata={
            "help": "Of conversations: all tokens are predicted, or those alone that the assistant writes: what a chat "
            "template has between `{% generation %}` and `{% endgeneration %}`; of one without, what comes behind the "
            "prompt for an answer."
        },
    )
    label_column: str = attrs.field(
        default="label",
        metadata={"help": "For classifications: the column with the class. Of `token-classification`, with a list."},
    )
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] = attrs.field(
        default="single_label_classification",
        metadata={
            "help": "For classifications of rows: a class of each, a list of a 1 or a 0 for each class, or "
            "a number, of which `num_labels` may be more."
        },
    )
    num_labels: Annotated[int, Gt(0)] | None = attrs.field(
        default=None,
        metadata={
            "help": "For classifications: how many classes there are. None: those of `classes`, or 2; of a "
            "regression, 1."
        },
    )
    classes: tuple[str, ...] = attrs.field(
        default=(),
        metadata={
            "help": "For classifications: the names of the classes, by their numbers, which the model keeps as "
            "`id2label`. The column may have names then."
        },
    )
    words_column: str = attrs.field(
        default="tokens", metadata={"help": "For `token-classification`: the column with the words, a list."}
    )
    question_column: str = attrs.field(
        default="question", metadata={"help": "For `question-answering`: the column with the question."}
    )
    context_column: str = attrs.field(
        default="context", metadata={"help": "For `question-answering`: the column with the text that has the answer."}
    )
    answers_column: str = attrs.field(
        default="answers",
        metadata={
            "help": "For `question-answering`: the column with `text` and `answer_start`, as SQuAD has it; without "
            "any where there is no answer."
        },
    )
    stride: Annotated[int, Ge(0)] = attrs.field(
        default=128,
        metadata={
            "help": "For `question-answering`: tokens that two parts of a context, longer than `max_length`, share."
        },
    )
    max_length: Annotated[int, Gt(1)] = attrs.field(
        default=512, metadata={"help": "Tokens of a text; longer ones are cut. With `packing`: of a block."}
    )
    append_eos: bool = attrs.field(
        default=True, metadata={"help": "For `causal-lm`: end each text with the end token."}
    )
    packing: bool | Literal["texts"] = attrs.field(
        default=False,
        metadata={
            "help": "For `causal-lm`. `texts`: the whole texts of a batch in few rows of at most `max_length`, each "
            "attending to itself alone. True: texts one after the other, cut into blocks of `max_length`; no token is "
            "lost, and attention goes on over the end of a text."
        },
    )
    mask_probability: Annotated[float, Gt(0), Lt(1)] = attrs.field(
        default=0.15, metadata={"help": "For `masked-lm`: the share of tokens to be predicted."}
    )

    torch_compile: bool = attrs.field(
        default=False,
        metadata={
            "help": "Compile the model by `torch.compile`, for any shape of a batch: the first step takes longer, "
            "the others less. On a CPU it needs a C++ compiler."
        },
    )
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = attrs.field(
        default=0.0,
        metadata={
            "help": "The part of each target that is spread over the whole vocabulary, or over all classes. A "
            "validation's loss is without it."
        },
    )

    optimizer: Optimizer = attrs.field(
        default="adamw",
        metadata={
            "help": "As `transformers.Trainer` makes it. `lion`, those of 8 bits and the paged ones need bitsandbytes."
        },
    )
    optimizer_options: Mapping[str, Any] = attrs.field(
        factory=dict, metadata={"help": 'What the optimizer takes besides, as its class names it: `{"momentum": 0.9}`.'}
    )
    learning_rate: Annotated[float, Gt(0)] = attrs.field(default=5e-5, metadata={"help": "At its highest."})
    weight_decay: Annotated[float, Ge(0)] = attrs.field(
        default=0.0, metadata={"help": "Of all parameters but biases and those of normalizations."}
    )
    adam_betas: tuple[float, float] = attrs.field(default=BETAS, metadata={"help": "Of AdamW and Lion."})
    schedule: Schedule = attrs.field(
        default="linear", metadata={"help": "How the learning rate falls after the warm-up, as transformers names it."}
    )
    warmup_steps: Annotated[int, Ge(0)] = attrs.field(
        default=0, metadata={"help": "Steps in which the learning rate rises from 0."}
    )
    warmup_ratio: Annotated[float, Ge(0), Lt(1)] = attrs.field(
        default=0.0, metadata={"help": "In place of `warmup_steps`: their share of all steps, rounded up."}
    )
    schedule_options: Mapping[str, Any] = attrs.field(
        factory=dict,
        metadata={"help": 'What the schedule takes besides, as transformers names it: `{"min_lr_rate": 0.1}`.'},
    )
    max_grad_norm: Annotated[float, Ge(0)] = attrs.field(
        default=1.0, metadata={"help": "The norm that gradients are scaled down to; 0: never."}
    )
    strategy: Literal["ddp", "fsdp2"] = attrs.field(
        default="ddp",
        metadata={"help": "On several ranks: the whole model on each, or a part of every parameter."},
    )

    max_new_tokens: Annotated[int, Gt(0)] = attrs.field(
        default=64, metadata={"help": "Tokens that a generated sample adds to its prompt."}
    )
    temperature: Annotated[float, Ge(0), Le(10)] = attrs.field(
        default=0.8, metadata={"help": "Of generated samples; 0: always the likeliest token."}
    )

    def __attrs_post_init__(self) -> None:
        if self.model is not None and self.config:
            raise InvalidSettings(
                "/config", "the model's folder has a configuration", hint='remove "config" or "model"'
            )
        if self.new_head and self.config:
            raise InvalidSettings("/new_head", "a model from a config has new weights alone", hint="remove it")
        if self.config and "model_type" not in self.config:
            raise InvalidSettings("/config", 'it has no "model_type"', hint='for instance "model_type": "llama"')
        if self.warmup_ratio and self.warmup_steps:
            raise InvalidSettings("/warmup_ratio", "the job has warmup_steps, too", hint="remove one of the two")
        if self.learn_from == "answers":
            if not self.messages_column:
                hint = 'name the column of conversations in "messages_column"'
                raise InvalidSettings("/learn_from", "answers are of conversations, and the data is text", hint=hint)
            if self.packing is True:
                message = "blocks of several conversations do not know which tokens are answers"
                raise InvalidSettings("/learn_from", message, hint='set "packing" to "texts", or learn from "all"')
        self._check_adapters()
        self._check_labels()
        if self.task != "causal-lm":
            for name, given in (("packing", bool(self.packing)), ("messages_column", bool(self.messages_column))):
                if given:
                    raise InvalidSettings(f"/{name}", f'it is for "causal-lm", and the task is "{self.task}"')

    @property
    def label_count(self) -> int:
        """Return how many classes there are, or numbers of a regression."""
        return self.num_labels or len(self.classes) or (1 if self.problem_type == "regression" else 2)

    def _check_adapters(self) -> None:
        pointer = "/lora" if self.lora is not None else "/adapter"
        if self.lora is None and self.adapter is None:
            return
        if self.config:
            message = "adapters are trained on a model that has learned something, and this one has new weights"
            raise InvalidSettings(pointer, message, hint='name the folder of a model in "model"')
        if self.lora is not None and self.adapter is not None:
            raise InvalidSettings("/adapter", "it has settings of its own", hint='remove "lora"')
        if self.frozen:
            message = "with adapters, the model is frozen already"
            raise InvalidSettings("/frozen", message, hint='choose layers by "target_modules" of "lora"')

    def _check_labels(self) -> None:
        if self.problem_type != "single_label_classification" and self.task not in _LABELLED:
            message = f'it is for {", ".join(_LABELLED)}, and the task is "{self.task}"'
            raise InvalidSettings("/problem_type", message, hint="remove it")
        if self.label_count == 1 and self.problem_type == "single_label_classification":
            message = "one class is nothing to choose from"
            raise InvalidSettings("/num_labels", message, hint='for numbers, set "problem_type" to "regression"')
        if self.classes and len(self.classes) != self.label_count:
            message = f'"classes" has {len(self.classes)}, and "num_labels" is {self.num_labels}'
            raise InvalidSettings("/num_labels", message, hint="remove it")
        if len(set(self.classes)) < len(self.classes):
            raise InvalidSettings("/classes", "two classes have the same name", hint="name each class once")
