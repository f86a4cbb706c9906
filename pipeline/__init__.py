"""From a document and a question to an answer with evidence, on any engine that completes a prompt.

Read in this order:

    strategies/map_reduce.py    the main path: gate, map, collapse, reduce; it names the modules it goes through
    request.py, plan.py         what a run is asked, and what it will cost
    run.py, begin_run.py        what it may use, what all its steps share
    chunk_account.py            what became of each chunk, and the answer that says so
    strategies/                 every other way to an answer: a file, or a package that holds all that is its own

A module that stands beside this one serves the main path or several strategies.
"""
