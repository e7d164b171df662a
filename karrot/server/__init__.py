"""Runs the HTTP server with gunicorn's processes, uvicorn's connections, and Karrot's own timeouts."""
