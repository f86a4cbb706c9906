"""Jobs: runs that are kept in a database, so that nothing submitted is lost, whatever dies.

job.py          what a job is, its states, what it was asked
schema.py       the tables, the same for SQLite and Postgres
database.py     connections: one writer at a time, reads beside it
job_store.py    submit, read, cancel; claim, renew and finish under a fenced lease
key_store.py    API keys and what each may spend
file_store.py   uploaded bytes and the text read from them, by content
run_jobs.py     the runner: claims jobs and runs the pipeline on them
"""
