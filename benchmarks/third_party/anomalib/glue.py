"""Ganomaly over a folder of random images."""

from pathlib import Path

import numpy as np
from anomalib.data import Folder
from PIL import Image


def data():
    folder = Path("images")
    for kind, count in (("good", 40), ("bad", 4)):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for one in range(count):
            pixels = np.random.default_rng(one).integers(256, size=(32, 32, 3), dtype=np.uint8)
            if not (path := folder / kind / f"{one}.png").exists():
                Image.fromarray(pixels).save(path)
    return Folder(
        name="random",
        root=folder,
        normal_dir="good",
        abnormal_dir="bad",
        train_batch_size=4,
        eval_batch_size=4,
        num_workers=0,
        seed=1,
    )
