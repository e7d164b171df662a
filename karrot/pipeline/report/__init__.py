"""The report: `aggregates` reduce tables to `findings`; `sentences`, `advice` and `svg_charts` make a page of them."""
