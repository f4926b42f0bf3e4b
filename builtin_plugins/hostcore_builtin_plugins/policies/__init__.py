"""The policies that ship with hostcore."""
