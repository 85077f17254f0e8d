"""The views of an installation: JSON values, the HTTP API, metrics, the web page.

The command and the page show the same facts: both get them from `values`, `sessions`, `runs` and
`sources`. Only `app`, `stream` and `process` need the extra `console` (Starlette, uvicorn).
"""
