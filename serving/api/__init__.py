"""The gateway: HTTP in, records of `serving.jobs` out. Routes only translate; nothing here runs a job.

app.py, gateway.py   create_app; what every route gets, and who is asking
http_server.py       connections: a deadline for headers
auth.py              keys, scopes, what is left of a key's limits, and when no key is needed
errors.py            one table from error class to status; bodies for OpenAI's clients and RFC 9457 readers alike
request_log.py       request ids, traces, the log line, safety headers, limits of bodies, the last resort for errors
sse.py               EventFeed: one poller behind all who follow jobs
event_stream.py      server-sent events as a response
jobs.py, job_views.py, job_bodies.py, job_objects.py, job_tree.py, job_ids.py, admission.py
                     the native API: submit, follow, stop; tree, evidence, text
files.py, multipart_upload.py
                     uploads, streamed
chat.py, responses.py, models.py, and what they use
                     OpenAI's dialect
health.py, metrics.py, usage.py, openapi.py, docs_page.py, pages/
                     operations, the description, and the pages of a browser
"""
