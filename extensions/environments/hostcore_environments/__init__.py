"""Environments of their own for workers, built by uv once per machine.

Its door: ``environment`` of a job, ``hostcore environments``, ``--environment`` of the commands about plugins, and
``config/pylock.toml`` of a run.

::

    job's "environment" ─▶ builder ─▶ uv: resolve ─▶ pylock.toml ─┬▶ cache: there is one of this key ──────▶ its Python
                              └ wheels of the running hostcore ───┴▶ uv: venv, install ─▶ rename into the cache ─┘
"""
