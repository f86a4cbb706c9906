"""Jobs: runs that are kept in a database, so that nothing submitted is lost, whatever dies.

job.py          what a job is, its states, what it was asked
store.py        submit, read, cancel
leases.py       claim, renew and finish under a fenced lease
runner.py       the runner: claims jobs and runs the pipeline on them
attempt.py      one attempt at one job; work.py is what it does
startup_report.py
                how far a runner's start is, before it can do anything else
"""
