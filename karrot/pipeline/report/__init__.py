"""Makes the report: `job.find` reduces tables to `finding_types.Findings`, and `html_page.page` shows them."""
