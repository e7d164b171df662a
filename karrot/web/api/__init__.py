"""Serves ``/api/v1`` and ``/openapi.json``: what Karrot knows, for programs."""
