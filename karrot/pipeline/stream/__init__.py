"""Has what streaming queries share: record sources, the query runner with the state folder, and metrics."""
