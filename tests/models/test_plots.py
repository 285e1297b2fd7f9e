from matplotlib.figure import Figure

from turnwise.models.plots import Line, draw_lines, height


def test_many_lines_are_told_apart_and_all_are_named() -> None:
    names = ["_mine", "costs $x_$ and $1", *map(str, range(58))]
    lines = [Line(name, [1], [2.0]) for name in names]
    figure = Figure(figsize=(5, height(lines, 1)))
    axes = figure.subplots()
    draw_lines(axes, lines)
    assert len({(str(line.get_color()), line.get_marker()) for line in axes.lines}) == len(names)
    figure.draw_without_rendering()
    legend = axes.get_legend()
    assert legend
    shown = [text.get_text().replace(r"\$", "$") for text in legend.get_texts()]
    assert shown == names
    assert legend.get_window_extent().y0 >= axes.get_window_extent().y0


def test_no_lines_have_no_legend() -> None:
    axes = Figure().subplots()
    draw_lines(axes, [])
    assert axes.get_legend() is None
