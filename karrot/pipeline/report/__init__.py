"""The report: `aggregates` make `findings` of the tables; `sentences`, `advice`, `svg` and `page` make a page of these."""
