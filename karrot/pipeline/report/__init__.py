"""The report: `figures` reduce the tables to small rows; of these `words`, `advice`, `svg` and `page` make a page."""
