"""A linear regression by stochastic gradient descent, as a child of hostcore's trainer ``process``.

Plain Python 3.8 or later with pyarrow: no hostcore, no torch, no NumPy. It speaks ``hostcore.trainer/1``: a request a
line on standard input, an answer a line on standard output, batches as an Arrow IPC stream on a socket.

    prediction = bias + sum of weight[i] * column[i]
    loss       = mean of (prediction - target)^2 over the rows of a batch
"""

# ruff: noqa: ARG002, B905, BLE001, S311
import json
import math
import os
import random
import sys
from pathlib import Path

import pyarrow as pa

PROTOCOL = "hostcore.trainer/1"


class InvalidSettings(Exception):
    """A setting makes no sense; ``pointer`` locates it."""

    def __init__(self, pointer, message):
        super().__init__(message)
        self.data = {"kind": "InvalidSettings", "pointer": pointer}


class InvalidData(Exception):
    """The rows do not fit the settings."""

    def __init__(self, message):
        super().__init__(message)
        self.data = {"kind": "InvalidData"}


class Linear:
    """The trainer: a method for each of the protocol's."""

    def __init__(self):
        self._batches_file = os.fdopen(int(os.environ["HOSTCORE_BATCHES_FD"]), "rb")
        self._reader = None
        #: The batches that are prepared and not used yet: the columns, and the target, by number.
        self._batches = {}

    def initialize(self, protocol, settings, run):
        """Return the protocol version and capabilities of this program."""
        self._target = settings.get("target", "target")
        self._rate = settings.get("learning_rate", 0.1)
        self._names = settings.get("columns")
        if not isinstance(self._rate, (int, float)) or not self._rate > 0:
            raise InvalidSettings("/learning_rate", f"{self._rate!r} is no learning rate")
        if not isinstance(self._names, list) or not self._names:
            raise InvalidSettings("/columns", "names no columns")
        self._random = random.Random(run["seed"])
        return {
            "protocol": PROTOCOL,
            "methods": ["validate_step", "test_step", "generate_sample"],
            "accumulate": True,
        }

    def setup(self):
        """Nothing to fetch."""

    def configure(self):
        """Begin with small random weights, which the seed decides."""
        self._weights = [self._random.uniform(-0.1, 0.1) for _ in self._names]
        self._bias = 0.0

    def prepare_batch(self, batch, rows, begins_stream=False):
        """Read the batch that follows on the socket."""
        if rows is None:
            raise InvalidData("this trainer needs a dataset")
        if begins_stream:
            self._reader = pa.ipc.open_stream(self._batches_file)
        table = self._reader.read_next_batch().to_pydict()
        missing = [name for name in [*self._names, self._target] if name not in table]
        if missing:
            raise InvalidData(f"there is no column {', '.join(missing)}")
        self._batches[batch] = ([table[name] for name in self._names], table[self._target])

    def train_step(self, batches, step, epoch):
        """One step down the gradient of the mean loss of the batches."""
        parts = [self._batches.pop(batch) for batch in batches]
        self._batches.clear()  # what was prepared before and is not asked for is not needed any more
        rows = sum(len(target) for _, target in parts)
        loss, gradient, of_bias = 0.0, [0.0] * len(self._weights), 0.0
        for columns, target in parts:
            for row, wanted in enumerate(target):
                error = self._predict(columns, row) - wanted
                loss += error * error / rows
                of_bias += 2 * error / rows
                for i, column in enumerate(columns):
                    gradient[i] += 2 * error * column[row] / rows
        self._bias -= self._rate * of_bias
        self._weights = [weight - self._rate * slope for weight, slope in zip(self._weights, gradient)]
        return {"metrics": {"loss": number(loss), "lr": self._rate}}

    def validate_step(self, batches, step, epoch):
        """The loss of a batch, without a step."""
        (columns, target) = self._batches.pop(batches[0])
        loss = sum((self._predict(columns, row) - wanted) ** 2 for row, wanted in enumerate(target)) / len(target)
        return {"metrics": {"loss": number(loss)}}

    test_step = validate_step

    def generate_sample(self, step, request, output_dir):
        """Write the weights where people can read them."""
        named = zip([*self._names, "bias"], [*self._weights, self._bias])
        Path(output_dir, "weights.txt").write_text("".join(f"{name} {weight!r}\n" for name, weight in named))
        return {"weights": len(self._weights)}

    def save_checkpoint(self, step, output_dir, final):
        """Write all that is needed to go on."""
        state = {"weights": self._weights, "bias": self._bias}
        Path(output_dir, "weights.json").write_text(json.dumps(state))

    def load_checkpoint(self, step, checkpoint_dir):
        """Go on from what was written."""
        state = json.loads(Path(checkpoint_dir, "weights.json").read_text())
        self._weights, self._bias = state["weights"], state["bias"]

    def _predict(self, columns, row):
        return self._bias + sum(weight * column[row] for weight, column in zip(self._weights, columns))


def number(value):
    """A number as the protocol has it: JSON has none for these three."""
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def main():
    """Answer each request, in the order in which they come, until there are no more."""
    trainer = Linear()
    # The batches are a stream of their own; nothing but answers may come on standard output.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        answer = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            answer["result"] = getattr(trainer, request["method"])(**request["params"])
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            answer["error"] = {"code": -32000, "message": message, "data": getattr(error, "data", None)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
