"""Alembic's environment: migrations run in the transaction that the service has opened."""

from alembic import context

from hostcore_service.store.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
