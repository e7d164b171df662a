"""Makes the report: `aggregates` reduces tables to findings; `sentences`, `advice` and `svg_charts` make a page."""
