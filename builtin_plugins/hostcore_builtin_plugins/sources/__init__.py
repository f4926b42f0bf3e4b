"""The data sources: files of rows in any store, as one ordered dataset."""
