"""The HTTP server: gunicorn's worker with connections, admission and deadlines of our own."""
