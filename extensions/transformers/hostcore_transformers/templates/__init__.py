"""Chat templates by name, each with the marks of what an assistant writes; and that of a file."""

from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from hostcore_hookspecs import InvalidSettings

#: Tokens that a template writes, and that a tokenizer needs as such.
_MARKS: Final[dict[str, tuple[str, ...]]] = {
    "chatml": ("<|im_start|>", "<|im_end|>"),
    "llama3": ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "mistral": (),
    "gemma": ("<start_of_turn>", "<end_of_turn>"),
    "zephyr": (),
}


def set_template(tokenizer: Any, template: str | Path) -> None:
    """Give a tokenizer a chat template.

    :param template: Its name, or the path of a file.
    :raises InvalidSettings: When the file cannot be read, or the tokenizer lacks a token that the template writes.
    """
    if isinstance(template, Path):
        try:
            tokenizer.chat_template = template.read_text()
        except (OSError, UnicodeDecodeError) as error:
            hint = f"a file with a template of Jinja, or one of {', '.join(_MARKS)}"
            raise InvalidSettings("/chat_template", f"{template} cannot be read: {error}", hint=hint) from error
        return
    known = tokenizer.get_vocab()
    if missing := [mark for mark in _MARKS[template] if mark not in known]:
        quoted = ", ".join(f'"{mark}"' for mark in missing)
        message = f'"{template}" writes {", ".join(missing)}, which the tokenizer has no tokens for'
        raise InvalidSettings("/chat_template", message, hint=f'add them by "special_tokens": [{quoted}]')
    tokenizer.chat_template = (files(__name__) / f"{template}.jinja").read_text()
