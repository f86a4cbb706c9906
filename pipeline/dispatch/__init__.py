"""Getting calls to a model and their outcomes back. The only retries of the project live here."""
