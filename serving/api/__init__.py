"""The gateway: HTTP in, records of `serving.jobs` out. Routes only translate; nothing here runs a job.

app.py, gateway.py   create_app; what every route gets, and who is asking
http_server.py       connections: a deadline for headers
auth.py              keys, scopes, what is left of a key's limits, and when no key is needed
errors.py            one table from error class to status; bodies for OpenAI's clients and RFC 9457 readers alike
middleware.py        request ids, traces, the log line, safety headers, limits of bodies, the last resort for errors
ids.py, clients.py   the spellings of a job's id; who is waiting for it
openapi.py, pages.py, docs/
                     the description, and the pages of a browser
native/              the native API: submit, follow, stop; tree, evidence, text
openai/              OpenAI's dialect: chat, responses, models, files
stream/              feed.py: one poller behind all who follow jobs; sse.py: server-sent events as a response
ops/                 health, metrics, usage
"""
