"""The schema's history, run by `serving.jobs.migrate` only."""
