"""The HTTP server: a gunicorn worker class with its own connections, admission queue and deadlines."""
