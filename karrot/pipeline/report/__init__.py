"""The report: `aggregates` make `findings` of the tables; `sentences`, `advice`, `svg` and `page` make it of these."""
