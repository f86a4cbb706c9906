"""What alembic calls: run the revisions on the connection, and inside the transaction, that `migrate` hands over."""

from alembic import context

from serving.storage.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
