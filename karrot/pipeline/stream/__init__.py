"""Shared code of streaming queries: record sources, the query runner with the state folder, and metrics."""
