"""Jobs: runs that are kept in a database, so that nothing submitted is lost, whatever dies.

job.py              what a job is, its states, what it was asked
store.py            submit, read, cancel; claim, renew and finish under a fenced lease; whose turn it is
retention.py        what is kept for how long
runner.py           the runner: claims jobs and runs the pipeline on them
runner_process.py   its process; supervisor.py starts it, and replaces one that dies or hangs
run_here.py         one job in the process of the command that asked for it
"""
