"""Steps that every request goes through."""
