"""Getting calls to a model and their outcomes back in order. The only retries of the project live here."""
