"""Environments of their own for workers, built by uv once per machine.

::

    job's "environment" ─▶ builder ─▶ uv: resolve ─▶ pylock.toml ─┬▶ cache: there is one of this key ──────▶ its Python
                              └ wheels of the running hostcore ───┴▶ uv: venv, install ─▶ rename into the cache ─┘
"""
