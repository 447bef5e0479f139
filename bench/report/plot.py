"""The plot of ratios, as SVG.

It has colours of its own for light and for dark, and asks for no font and nothing from a network.
All lengths are in pixels.
"""

import html
import math

import table

WIDTH = 960
LABELS = 500  # the width of the names of the rows
MARGIN = 16
LINE = 26  # from bar to bar
BAR = 14
TOP = 84
VALUE = 44  # room for a number beside the longest bar

STYLE = """
  svg { --paper: #ffffff; --ink: #1f2328; --faint: #59636e; --grid: #d1d9e0;
        --faster: #1a7f37; --slower: #bc4c00; }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #0d1117; --ink: #f0f6fc; --faint: #9198a1; --grid: #3d444d;
          --faster: #3fb950; --slower: #f0883e; }
  }
  text { font: 13px system-ui, sans-serif; fill: var(--ink); }
  .title { font-size: 16px; font-weight: 600; }
  .faint { fill: var(--faint); }
  .paper { fill: var(--paper); }
  .grid { stroke: var(--grid); }
  .one { stroke: var(--faint); stroke-width: 1.5; }
  .faster { fill: var(--faster); }
  .slower { fill: var(--slower); }
"""


def _range(ratios):
    """The least and the greatest ratio that the axis shows: some more than there are, and 1."""
    return 0.8 * min([1, *ratios]), 1.25 * max([1, *ratios])


def _ticks(least, most):
    """Powers of ten and some between them, in this range."""
    decades = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    factors = (1, 3) if most / least > 30 else (1, 2, 5)
    ticks = [factor * 10.0**decade for decade in decades for factor in factors]
    return [tick for tick in ticks if least <= tick <= most]


def text(x, y, words, kind="", anchor="start"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">'
        f"{html.escape(words)}</text>"
    )


def line(x, top, bottom, kind):
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}" class="{kind}"/>'


def svg(report):
    """The text of report.svg: a bar for each rival of each row, on a logarithmic scale."""
    bars = [(row["name"], rival) for row in report["rows"] for rival in row["rivals"]]
    least, most = _range([rival["ratio"] for _, rival in bars])
    left, right = LABELS + MARGIN + VALUE, WIDTH - MARGIN - VALUE
    low, high = math.log10(least), math.log10(most)

    def x_of(ratio):
        return left + (math.log10(ratio) - low) / (high - low) * (right - left)

    bottom = TOP + LINE * len(bars)
    height = bottom + MARGIN
    title = "How many times as fast as other systems hvd is"
    subtitle = "Ratios of medians, measured in turns; logarithmic. Left of 1 the other is faster."
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" class="paper"/>',
        text(MARGIN, 28, title, "title"),
        text(MARGIN, 48, subtitle, "faint"),
    ]
    for tick in _ticks(least, most):
        x = x_of(tick)
        parts.append(line(x, TOP - 4, bottom, "one" if tick == 1 else "grid"))
        parts.append(text(x, TOP - 12, f"{tick:g}", "faint", "middle"))
    before = None
    for at, (name, rival) in enumerate(bars):
        y = TOP + LINE * at + LINE / 2
        ratio = rival["ratio"]
        faster = ratio >= 1
        begin, end = sorted((x_of(1), x_of(ratio)))
        if name != before:
            parts.append(text(MARGIN, y + 4, name))
        before = name
        parts.append(text(LABELS + MARGIN, y + 4, rival["name"], "faint", "end"))
        parts.append(
            f'<rect x="{begin:.1f}" y="{y - BAR / 2:.1f}" width="{max(end - begin, 1):.1f}" '
            f'height="{BAR}" rx="2" class="{"faster" if faster else "slower"}"/>'
        )
        where = (end + 6, "start") if faster else (begin - 6, "end")
        parts.append(text(where[0], y + 4, table.times(ratio), "", where[1]))
    return "\n".join([*parts, "</svg>"]) + "\n"
