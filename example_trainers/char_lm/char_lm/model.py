"""The model: a small GPT, with pre-norm blocks, learned positions and tied weights.

Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

#: Tokens are bytes.
VOCABULARY = 256


class Attention(nn.Module):
    """Causal self-attention: every position looks at itself and at those before it."""

    def __init__(self, *, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.to_queries_keys_values = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(texts, length, width) to the same."""
        texts, length, width = x.shape
        # (3, texts, heads, length, width of a head)
        queries, keys, values = (
            self.to_queries_keys_values(x).view(texts, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        dropout = self.dropout if self.training else 0.0
        mixed = scaled_dot_product_attention(queries, keys, values, dropout_p=dropout, is_causal=True)
        attended: Tensor = self.out(mixed.transpose(1, 2).reshape(texts, length, width))
        return attended


class Block(nn.Module):
    """Attention and an MLP, each added to what came in."""

    def __init__(self, *, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.attention = Attention(width=width, heads=heads, dropout=dropout)
        self.mlp_norm = nn.LayerNorm(width, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width, bias=False), nn.GELU(), nn.Linear(4 * width, width, bias=False)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(texts, length, width) to the same."""
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        further: Tensor = self.dropout(self.mlp(self.mlp_norm(x)))
        return x + further


class CharLm(nn.Module):
    """Predicts the next byte at every position of a text.

    :param context: The longest text, in bytes.
    :param layers: How many blocks.
    :param heads: Of the attention; a divisor of ``width``.
    :param width: The size of the vector that stands for a position.
    :param dropout: The share of values that training drops.
    """

    def __init__(self, *, context: int, layers: int, heads: int, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.bytes = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width=width, heads=heads, dropout=dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                # What a block adds starts smaller the more blocks there are, so that their sum does not grow with them.
                adds = name.endswith(("attention.out.weight", "mlp.2.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if adds else 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Predict.

        :param tokens: (texts, length), int64: bytes; at most ``context`` of them.
        :return: (texts, length, 256): logits of the byte after each position.
        """
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.bytes(tokens) + self.positions(positions))
        for block in self.blocks:
            x = block(x)
        return linear(self.norm(x), self.bytes.weight)  # the table that reads bytes also writes them
