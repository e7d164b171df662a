"""Burrow: its JSON, its rules and its REST API."""
