"""Each row of the reference is a result of the search."""

from tools.docs_site.reference_rows import has_rows, with_anchors, with_rows
from tools.docs_site.site_map import Page

SETTINGS = Page("docs/reference/settings.md", "reference/settings.md", "Settings")
TABLE = (
    "| name | what it does |\n| --- | --- |\n| `KARROT_LOG` | The `lowest` level. | INFO |\n| `KARROT_LOG` | again |\n"
)


def test_the_first_row_of_each_name_of_the_reference_gets_an_anchor() -> None:
    anchored = TABLE.replace("| `KARROT_LOG` | The", '| <a id="karrot_log"></a>`KARROT_LOG` | The')
    assert with_anchors(SETTINGS, TABLE) == anchored
    assert (has_rows(TABLE), has_rows(anchored)) == (False, True)
    assert with_anchors(Page("docs/kafka.md", "kafka.md", "Kafka"), TABLE) == TABLE


def test_a_row_with_an_anchor_is_found_by_its_name_after_the_page_that_has_it() -> None:
    path = ["Reference", "Settings"]
    page = {"location": "reference/settings/", "level": 1, "title": "Settings", "text": "", "path": path, "tags": []}
    heading = {**page, "location": "reference/settings/#names"}
    other = {**page, "location": "other/"}
    index = {"config": {}, "items": [page, heading, other]}
    row = {
        "location": "reference/settings/#karrot_log",
        "level": 2,
        "title": "KARROT_LOG",
        "text": "<p>The <code>lowest</code> level. · INFO</p>",
        "path": path,
        "tags": [],
    }
    texts = {SETTINGS.place: with_anchors(SETTINGS, TABLE)}
    assert with_rows(index, [SETTINGS], texts) == {"config": {}, "items": [page, heading, row, other]}
    assert with_rows({"items": [other]}, [SETTINGS], texts) == {"items": [other]}
