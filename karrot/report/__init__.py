"""Makes the page of a report from `karrot.history.report_findings.Findings`."""
