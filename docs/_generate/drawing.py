"""SVG by hand: a few shapes in colours that fit a light and a dark page."""

from __future__ import annotations

from html import escape

# Each class: the colour on a light page, and on a dark one.
COLOURS = {
    "paper": ("#ffffff", "#131416"),
    "ink": ("#1f2328", "#e6edf3"),
    "soft": ("#59636e", "#9198a1"),
    "rule": ("#d1d9e0", "#3d444d"),
    "first": ("#0969da", "#4493f8"),
    "second": ("#bc4c00", "#db6d28"),
    "third": ("#1a7f37", "#3fb950"),
    "pale": ("#ddf4ff", "#12263f"),
    "other": ("#afb8c1", "#656c76"),
}


class Drawing:
    """A picture of so many pixels, with an opaque ground, so that it can be read on any page."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []
        self.box(0, 0, width, height, "paper")

    def text(
        self,
        x: float,
        y: float,
        text: str,
        kind: str = "ink",
        size: int = 14,
        at: str = "start",
        bold: bool = False,
    ) -> None:
        """Words whose line is at y; at: where x is in them, 'start', 'middle' or 'end'."""
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" class="{kind}" font-size="{size}" text-anchor="{at}"{weight}>{escape(text)}</text>'
        )

    def box(self, x: float, y: float, width: float, height: float, kind: str, round_: float = 0) -> None:
        """A filled rectangle."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_:g}" class="{kind}"/>'
        )

    def line(
        self, x1: float, y1: float, x2: float, y2: float, kind: str = "rule", arrow: bool = False
    ) -> None:
        """A line, with an arrow at its end if asked for."""
        end = f' marker-end="url(#{kind})"' if arrow else ""
        self.parts.append(f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" class="{kind}-line"{end}/>')

    def circle(self, x: float, y: float, radius: float, kind: str, filled: bool = True) -> None:
        """A disc, or a ring."""
        self.parts.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" class="{kind if filled else f"{kind}-line"}"/>'
        )

    @property
    def svg(self) -> str:
        """The file."""
        light, dark = (
            "".join(
                f".{name}{{fill:{pair[which]}}}.{name}-line{{stroke:{pair[which]};fill:none;stroke-width:1.5}}"
                for name, pair in COLOURS.items()
            )
            for which in (0, 1)
        )
        markers = "".join(
            f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" class="{name}"/></marker>'
            for name in ("ink", "first", "second", "soft")
        )
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" role="img" font-family="system-ui, sans-serif">\n'
            f"<title>{escape(self.title)}</title>\n"
            f"<style>{light}@media (prefers-color-scheme:dark){{{dark}}}</style>\n"
            f"<defs>{markers}</defs>\n{body}\n</svg>\n"
        )
