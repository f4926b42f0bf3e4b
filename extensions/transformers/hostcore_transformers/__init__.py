"""The trainer ``transformers``: models of Hugging Face transformers, trained by hostcore."""
