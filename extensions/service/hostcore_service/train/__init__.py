"""``/train``: the unified trainer API."""
