from hypothesis import given
from hypothesis import strategies as st

from karrot.cli.table import Column, laid_out, shown, width_of


@given(st.text(max_size=30))
def test_whatever_a_name_is_it_is_shown_in_printable_cells(name: str) -> None:
    assert shown(name).isprintable()
    assert shown(name, "ascii").isascii()
    assert shown(name).strip() == shown(name) != ""


COLUMNS = (
    Column("NAME", may_be_cut=True),
    Column("NUMBER", is_number=True, goes=2),
    Column("OWNER", may_be_cut=True, goes=1),
)


@given(
    st.lists(st.tuples(*[st.text(max_size=40).map(shown)] * 3), max_size=5),
    st.none() | st.integers(8, 120),
)
def test_a_table_lines_up_and_fits(rows: list[tuple[str, str, str]], width: int | None) -> None:
    lines = list(laid_out(COLUMNS, rows, width))
    assert len(lines) == len(rows) + 1
    if width is None:
        for line, row in zip(lines[1:], rows, strict=True):
            assert all(cell in line for cell in row)
    else:
        assert all(width_of(line) <= width for line in lines)
