"""Writes what the two jobs read: ``python prepare_data.py``, in any folder with ``hostcore[transformers]`` installed.

All of it comes from this Python. The language reference that ``help()`` shows is the text of the first job; questions
about functions of the standard library, with the first sentence of their docstrings as answers, are that of the second.
The tokenizer is trained on both.
"""

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).parent
TOKENS = 2048
SPECIAL = {"pad_token": "<pad>", "eos_token": "</s>"}
#: Template of a conversation. ``</s>`` ends each message.
CHAT = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}</s>{% endfor %}"
#: Every tenth text is for validation.
HELD_OUT = 10


def paragraphs() -> list[str]:
    """The language reference, each paragraph once: many belong to several topics."""
    found = (paragraph.strip("\n") for topic in topics.values() for paragraph in topic.split("\n\n"))
    return [one for one in {" ".join(paragraph.split()): paragraph for paragraph in found}.values() if one]


def conversations() -> list[list[dict[str, str]]]:
    """Questions about functions and classes of the standard library, and their answers."""
    return [
        [
            {"role": "user", "content": f"What does {name} do?"},
            {"role": "assistant", "content": answer},
        ]
        for name, answer in sorted(dict(documented()).items())
    ]


def documented() -> Iterator[tuple[str, str]]:
    """Names, and the first sentences of their docstrings."""
    for module_name in sorted(sys.stdlib_module_names):
        if module_name.startswith(("_", "idlelib", "lib2to3", "antigravity", "this", "turtle", "tkinter")):
            continue
        try:
            module = importlib.import_module(module_name)
        except ImportError:  # of another operating system
            continue
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name, None)
            text = inspect.getdoc(value) if callable(value) else None
            first = " ".join((text or "").partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
            if 20 <= len(first) <= 200:
                yield f"{module_name}.{name}", f"{first}."


def train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE (Sennrich et al., arXiv:1508.07909) with a chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS,
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL)
    made.chat_template = CHAT
    return made


def write(name: str, column: str, values: list[object]) -> None:
    """``data/NAME.parquet`` and ``data/NAME-validation.parquet``."""
    held_out = values[::HELD_OUT]
    training = [value for place, value in enumerate(values) if place % HELD_OUT]
    for file, rows in ((name, training), (f"{name}-validation", held_out)):
        pq.write_table(pa.table({column: rows}), HERE / f"data/{file}.parquet", row_group_size=64)
        print(f"data/{file}.parquet: {len(rows):,} rows")


def main() -> None:
    """Write everything."""
    (HERE / "data").mkdir(exist_ok=True)
    reference, chats = paragraphs(), conversations()
    tokenizer = train_tokenizer([*reference, *(message["content"] for chat in chats for message in chat)])
    tokenizer.save_pretrained(HERE / "data/tokenizer")
    write("reference", "text", list(reference))
    write("chats", "messages", list(chats))


if __name__ == "__main__":
    main()
