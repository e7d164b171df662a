"""The HTTP server: a gunicorn worker with its own connections, admission and deadlines."""
