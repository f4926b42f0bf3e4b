"""The model: three convolutions, and a linear layer."""

import torch
from torch import Tensor, nn

#: Pixels in a row of an image, and rows of pixels.
SIDE = 8
#: Pixels go from 0 to this.
WHITE = 16
CLASSES = 10


class DigitsModel(nn.Module):
    """A convolutional network for images of 8 by 8 pixels.

    It has no batch normalisation: what it makes of an image does not depend on the others of the batch, so that two
    small batches, or two ranks, train like one large batch.

    :param channels: Of the first convolution; the others have twice as many.
    :param dropout: The share of values before the last layer that training drops.
    """

    def __init__(self, *, channels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, 2 * channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * channels, 2 * channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(2 * channels * (SIDE // 4) ** 2, CLASSES),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Read images.

        :param images: (images, 64), uint8: rows of pixels from the top, as in the data.
        :return: (images, 10): a logit for each digit, in the precision that autocast asks for.
        """
        pixels = images.view(-1, 1, SIDE, SIDE).to(torch.float32) / WHITE
        logits: Tensor = self.layers(pixels)
        return logits
