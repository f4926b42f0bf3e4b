"""Data sources beyond files: Hugging Face datasets, Lance, DuckDB SQL and Delta Lake."""
