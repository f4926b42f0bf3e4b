"""The sweeps at a service: ``/v1/sweeps``, and their page. Imported by services alone, which bring FastAPI."""
