"""The pages: every group, one group, what was refused. Plain HTML, whole without a script."""
