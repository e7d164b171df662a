"""The HTTP server: gunicorn's processes, uvicorn's connections, and time limits of Karrot's own."""
