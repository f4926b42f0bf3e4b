"""The model: embeddings of the ids beside standardised numbers, and a small MLP."""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn

from flight_delay.features import CATEGORIES, DEPARTURE_DELAY, FLIGHT_NUMBERS, NUMBER_NAMES, NUMBERS

_DEPARTURE_DELAY_INDEX: Final = NUMBER_NAMES.index(DEPARTURE_DELAY)
#: What one unit of the MLP's output is worth, so that it works with numbers around 1.
_OUTPUT_MINUTES: Final = 10.0


class FlightDelayModel(nn.Module):
    """Predicts the arrival delay as the departure delay plus a correction.

    :param hidden_sizes: The widths of the hidden layers.
    :param dropout: The share of hidden values that training drops.
    :param input_noise: What training adds to the numbers that neighbouring flights share, in standard deviations.
        Without it the network learns by heart which day had such weather, and how that day went.
    """

    center: Tensor
    scale: Tensor

    def __init__(self, *, hidden_sizes: Sequence[int], dropout: float = 0.0, input_noise: float = 0.0) -> None:
        super().__init__()
        self.hidden_sizes = tuple(hidden_sizes)
        self.input_noise = input_noise
        self.register_buffer("center", torch.tensor([number.center for number in NUMBERS]))
        self.register_buffer("scale", torch.tensor([number.scale for number in NUMBERS]))
        self.embeddings = nn.ModuleList(nn.Embedding(category.size, category.width) for category in CATEGORIES)
        layers: list[nn.Module] = []
        width = len(NUMBERS) + sum(category.width for category in CATEGORIES)
        for hidden_size in hidden_sizes:
            layers += [nn.Linear(width, hidden_size), nn.ReLU(), nn.Dropout(dropout)]
            width = hidden_size
        self.layers = nn.Sequential(*layers, nn.Linear(width, 1))
        for parameter in self.embeddings.parameters():
            # torch's own start, N(0, 1), is noise that an airport with few flights would keep.
            nn.init.normal_(parameter, std=0.1)

    def forward(self, ids: Tensor, numbers: Tensor) -> Tensor:
        """Predict.

        :param ids: (flights, categories), int32 or int64, as in ``Batch.ids``.
        :param numbers: (flights, numbers), float32, as in ``Batch.numbers``.
        :return: (flights,), float32: the arrival delays in minutes.
        """
        standardised = (numbers - self.center) / self.scale
        if self.training and self.input_noise:
            of_the_flight, shared = standardised.tensor_split([len(FLIGHT_NUMBERS)], dim=1)
            shared = shared + self.input_noise * torch.randn_like(shared)
            standardised = torch.cat([of_the_flight, shared], dim=1)
        embedded = [embedding(ids[:, index]) for index, embedding in enumerate(self.embeddings)]
        correction: Tensor = self.layers(torch.cat([standardised, *embedded], dim=1)).squeeze(1)
        return numbers[:, _DEPARTURE_DELAY_INDEX] + _OUTPUT_MINUTES * correction.float()
