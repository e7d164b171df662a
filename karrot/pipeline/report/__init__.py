"""Makes the report: `job` reduces tables to findings, and `sentences` and `svg_charts` make a page of them."""
