"""Serves the JSON API for programs: ``/api/v1`` and ``/openapi.json``."""
