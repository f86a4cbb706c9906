"""The schema's history, run by `serving.storage.migrate` only."""
