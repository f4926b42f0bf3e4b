"""LightningModules and LightningDataModules as hostcore trainers.

Lightning and torch are imported when a run needs them; naming this package costs nothing. The modules, from the outside
in: ``trainer`` (what the host calls), ``data``, ``readers`` and ``indices`` (loaders that are read by number), ``fit``
(the order of Lightning's hooks in a step, an epoch and an evaluation), ``trainer_view`` (what a module sees as
``self.trainer``), ``checkpoint`` (the state in Lightning's own layout), ``unsaved`` (the state outside of it).

Its door: the trainers ``lightning`` and ``nemo``, their hyperparameters,
checkpoints, and the order of Lightning's hooks.
"""
