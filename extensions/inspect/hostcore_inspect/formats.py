"""Formats of exported weights."""

from typing import Literal

Format = Literal["hf", "safetensors", "dcp", "torch"]
Dtype = Literal["fp32", "bf16", "fp16"]
