"""The trainer ``process``: the methods of the contract, called in a program of any language."""
