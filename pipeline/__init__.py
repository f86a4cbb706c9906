"""From a document and a question to an answer with evidence, on any engine that completes a prompt.

Read `mapreduce/strategy.py` first: the main path, which names the modules it goes through. The folders, in the order
of the flow:

    documents/        files to one Document
    llm/, tasks/      how to speak to a model, and the prompts as Markdown
    chunks/           Document to numbered chunks
    findings/         what chunks say, and where
    dispatch/         calls out, outcomes back
    run/              one strategy on one question: request, plan, events, state, coverage, checkpoints
    mapreduce/        the main path
    strategies/       every other way to an answer
    ask.py            the front door
"""
