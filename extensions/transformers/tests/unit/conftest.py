"""A tokenizer that is trained on the spot."""

from pathlib import Path

import pytest
from transformers_workshop import CHAT, save_tokenizer


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(folder, chat=CHAT, pad_token="<pad>", eos_token="</s>", mask_token="<mask>")
    return folder
