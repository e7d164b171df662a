"""Models CloudWatch alarms and Auto Scaling policies as AWS documents them, for `karrot simulate` and for tests.

The package has no I/O and no clock, and imports nothing else of Karrot. `scalable_target` runs policies and alarms.
`arrival_rate` and `simulation` run policies and alarms on a recorded lag. `karrot.render.policies_and_alarms` makes the
stack of a recipe.
"""
