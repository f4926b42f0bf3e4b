"""MEGNet over lattices of different widths."""

import lightning.pytorch as pl
import numpy as np
from matgl.ext.pymatgen import Structure2Graph
from matgl.graph.data import MGLDataset, collate_fn_graph
from matgl.models import MEGNet
from matgl.utils.training import ModelLightningModule
from pymatgen.core import Lattice, Structure
from torch.utils.data import DataLoader


def model():
    network = MEGNet(
        dim_node_embedding=8,
        dim_edge_embedding=16,
        dim_state_embedding=2,
        nblocks=1,
        hidden_layer_sizes_input=(8, 4),
        hidden_layer_sizes_conv=(8, 8, 4),
        nlayers_set2set=1,
        niters_set2set=1,
        hidden_layer_sizes_output=(4, 4),
        is_classification=False,
        activation_type="softplus2",
        include_state=True,
        element_types=("Na", "Cl"),
        cutoff=4.0,
    )
    return ModelLightningModule(model=network, include_line_graph=False)


class Data(pl.LightningDataModule):
    def setup(self, stage):
        widths = np.linspace(3.0, 3.8, 40)
        crystals = [Structure(Lattice.cubic(one), ["Na", "Cl"], [[0, 0, 0], [0.5, 0.5, 0.5]]) for one in widths]
        self.rows = MGLDataset(
            structures=crystals,
            converter=Structure2Graph(element_types=("Na", "Cl"), cutoff=4.0),
            labels={"energy": [float(one) for one in widths]},
            save_cache=False,
        )

    def train_dataloader(self):
        return DataLoader(self.rows, batch_size=8, collate_fn=collate_fn_graph)
