"""Transformers, peft and their models, imported where the Hugging Face Hub cannot be reached: for a server of forks.

``huggingface_hub`` reads the variable when it is imported, and not again in a fork.
"""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import accelerate  # noqa: F401
import peft  # noqa: F401
import transformers.data.data_collator
import transformers.models.auto.modeling_auto
import transformers.models.auto.tokenization_auto
import transformers.models.bert.modeling_bert
import transformers.models.llama.modeling_llama
import transformers.optimization  # noqa: F401

import hostcore_transformers.frameworks
import hostcore_transformers.trainer  # noqa: F401
