from karrot.reporters.cloudwatch.collisions import LegacyNames


def test_a_name_that_two_clusters_have_is_taken_over_each_time() -> None:
    names = LegacyNames()
    heard = [("orders", "eu"), ("orders", "eu"), ("orders", "us"), ("orders", "us"), ("orders", "eu"), ("bills", "us")]
    assert [names.taken_over(name, cluster) for name, cluster in heard] == [False, False, True, False, True, False]


def test_the_names_heard_longest_ago_are_forgotten() -> None:
    names = LegacyNames(bound=2)
    for name in ("a", "b", "a", "c"):
        names.taken_over(name, "eu")
    assert [names.taken_over(name, "us") for name in ("a", "c", "b")] == [True, True, False]
