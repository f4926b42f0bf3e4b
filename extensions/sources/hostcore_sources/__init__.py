"""Data sources beyond files: Hugging Face datasets, Lance, DuckDB SQL and Delta Lake.

Its door: the sources ``datasets``, ``lance``, ``duckdb`` and ``delta``: their settings, rows, shards and errors.
"""
