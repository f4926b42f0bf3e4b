"""The trainer ``transformers``: models of Hugging Face transformers, trained by hostcore.

Its door: that trainer and the frameworks ``hf`` and ``meta``, their hyperparameters, and checkpoints that
``from_pretrained`` reads.
"""
