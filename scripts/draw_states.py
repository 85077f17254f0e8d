"""Draws docs/img/states.svg, the picture of the phases, from the table in _core/machine.py.

    python scripts/draw_states.py           write the picture
    python scripts/draw_states.py --check   exit 1 if the picture is not the one it would write

The table says which moves there are and why they happen; this file says only where each one is
drawn. A move without a place, a place without a move, or two texts on top of each other is an
error, so the picture can neither lie nor become unreadable.
"""

import argparse
import sys
from itertools import combinations
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from switchgear._core.machine import LEGAL_MOVES
from switchgear._core.types import Mode, Phase

PICTURE = Path(__file__).parent.parent / "docs" / "img" / "states.svg"
WIDTH, HEIGHT = 1000, 500
NODE_WIDTH, NODE_HEIGHT = 190, 68
LABEL_PX, LINE_PX = 14, 18
MARGIN = 12

Point = tuple[float, float]


class Box(NamedTuple):
    """A rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Box") -> bool:
        """Whether the two share any area."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def holds(self, point: Point) -> bool:
        """Whether the point lies inside."""
        return self.left < point[0] < self.right and self.top < point[1] < self.bottom


class Node(NamedTuple):
    """Where a phase is drawn, and what it means for a call."""

    x: float
    y: float
    meaning: str

    @property
    def box(self) -> Box:
        """The area it covers."""
        half_width, half_height = NODE_WIDTH / 2, NODE_HEIGHT / 2
        return Box(
            self.x - half_width, self.y - half_height, self.x + half_width, self.y + half_height
        )


class Route(NamedTuple):
    """Where a move is drawn: a curve through four points, and its label."""

    start: Point
    bend: Point
    bend_back: Point
    end: Point
    label: Point
    """The middle of the label's first line; for `start` and `end` anchors, that side of it."""
    anchor: str = "middle"

    def points(self) -> list[Point]:
        """Points along the curve, close enough to see what it runs through."""
        return [self._at(index / 50) for index in range(51)]

    def _at(self, t: float) -> Point:
        weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
        four = (self.start, self.bend, self.bend_back, self.end)
        x = sum(weight * point[0] for weight, point in zip(weights, four, strict=True))
        y = sum(weight * point[1] for weight, point in zip(weights, four, strict=True))
        return x, y


def line(start: Point, end: Point, label: Point) -> Route:
    """A straight route."""
    return Route(start, start, end, end, label)


NODES: dict[Phase, Node] = {
    Phase.CLOSED: Node(170, 230, "calls flow"),
    Phase.TRIPPING: Node(500, 72, "calls flow, each is judged"),
    Phase.OPEN: Node(830, 230, "calls are cut or reduced"),
    Phase.HALF_OPEN: Node(500, 388, "probes decide"),
}

ROUTES: dict[tuple[Phase, Phase], Route] = {
    (Phase.CLOSED, Phase.TRIPPING): Route(
        (140, 196), (145, 110), (285, 58), (405, 58), (214, 88), "end"
    ),
    (Phase.TRIPPING, Phase.CLOSED): Route(
        (448, 106), (436, 172), (216, 130), (206, 195), (446, 140), "start"
    ),
    (Phase.TRIPPING, Phase.OPEN): Route(
        (595, 58), (715, 58), (855, 110), (860, 196), (786, 88), "start"
    ),
    (Phase.CLOSED, Phase.OPEN): line((265, 222), (735, 222), (500, 212)),
    (Phase.OPEN, Phase.CLOSED): line((735, 244), (265, 244), (500, 263)),
    (Phase.OPEN, Phase.HALF_OPEN): Route(
        (860, 264), (855, 350), (715, 402), (595, 402), (786, 384), "start"
    ),
    (Phase.HALF_OPEN, Phase.OPEN): Route(
        (552, 354), (564, 288), (784, 330), (794, 265), (542, 324), "end"
    ),
    (Phase.HALF_OPEN, Phase.CLOSED): Route(
        (405, 402), (285, 402), (145, 350), (140, 264), (214, 384), "end"
    ),
}

STYLE = """
  .panel { fill: #ffffff; stroke: #d5dae1 }
  text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; text-anchor: middle }
  .label, .note { fill: #3b4452; font-size: 14px }
  .note { font-size: 13px }
  .move { fill: none; stroke: #7b8494; stroke-width: 1.8 }
  .head { fill: #7b8494 }
  .node rect { stroke-width: 2 }
  .name { font-size: 17px; font-weight: 650 }
  .meaning { font-size: 13px }
  .closed rect { fill: #e3f4e8; stroke: #2f9e57 } .closed text { fill: #14532d }
  .tripping rect { fill: #fdf1d6; stroke: #d1930f } .tripping text { fill: #6b4503 }
  .open rect { fill: #fbe3e1; stroke: #d0443a } .open text { fill: #7f1d1d }
  .half_open rect { fill: #e2edfb; stroke: #3b7bd4 } .half_open text { fill: #1e3f77 }
  @media (prefers-color-scheme: dark) {
    .panel { fill: #14181f; stroke: #303743 }
    .label, .note { fill: #c9d1dc }
    .move { stroke: #8b95a5 }
    .head { fill: #8b95a5 }
    .closed rect { fill: #12301d } .closed text { fill: #b5e8c6 }
    .tripping rect { fill: #352608 } .tripping text { fill: #f5d998 }
    .open rect { fill: #3a1614 } .open text { fill: #f7bfba }
    .half_open rect { fill: #14263f } .half_open text { fill: #bcd6fa }
  }
"""

ARROW_HEAD = (
    '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
    'markerHeight="8" orient="auto"><path class="head" d="M0,1 L10,5 L0,9 z"/></marker></defs>'
)


def lines_of(cause: str) -> list[str]:
    """The label, broken after a comma so that it stays narrow."""
    head, comma, tail = cause.partition(", ")
    return [head + comma.strip(), tail] if tail else [head]


def label_box(route: Route, cause: str) -> Box:
    """The area of a label, with room for wider fonts than ours."""
    lines = lines_of(cause)
    width = max(map(len, lines)) * LABEL_PX * 0.56
    x, y = route.label
    left = x - {"start": 0.0, "middle": width / 2, "end": width}[route.anchor]
    return Box(left, y - LABEL_PX, left + width, y + 4 + (len(lines) - 1) * LINE_PX)


def complaints() -> list[str]:
    """What is wrong with the picture: moves without a place, and texts that cannot be read."""
    found = [
        f"the move {before} → {after} is in LEGAL_MOVES and has no route here: add it to ROUTES"
        for before, after in LEGAL_MOVES.keys() - ROUTES.keys()
    ]
    found += [
        f"the route {before} → {after} is no move of LEGAL_MOVES: remove it from ROUTES"
        for before, after in ROUTES.keys() - LEGAL_MOVES.keys()
    ]
    if found or LEGAL_MOVES.keys() != ROUTES.keys():
        return sorted(found)
    labels = {move: label_box(ROUTES[move], cause) for move, cause in LEGAL_MOVES.items()}
    areas = [(f"the label of {a} → {b}", box) for (a, b), box in labels.items()]
    areas += [(f"the box of {phase}", node.box) for phase, node in NODES.items()]
    found += [
        f"{one} and {other} overlap: move one of them"
        for (one, one_box), (other, other_box) in combinations(areas, 2)
        if one_box.meets(other_box)
    ]
    page = Box(MARGIN, MARGIN, WIDTH - MARGIN, HEIGHT - MARGIN)
    for (before, after), box in labels.items():
        if box.left < page.left or box.right > page.right:
            found.append(f"the label of {before} → {after} leaves the picture: move it inwards")
        found += [
            f"the arrow {a} → {b} runs through the label of {before} → {after}: move the label"
            for (a, b), route in ROUTES.items()
            if any(box.holds(point) for point in route.points())
        ]
    return found


def picture() -> str:
    """The whole picture as SVG."""
    title = "The phases of a circuit and every move between them"
    modes = " · ".join(mode.value for mode in Mode)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">',
        "<!-- Drawn by scripts/draw_states.py from _core/machine.py; do not edit. -->",
        f"<title>{title}</title>",
        f"<style>{STYLE}</style>",
        ARROW_HEAD,
        f'<rect class="panel" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="14"/>',
        *(_move(move, cause) for move, cause in LEGAL_MOVES.items()),
        *(_node(phase, node) for phase, node in NODES.items()),
        _note(HEIGHT - 37, f"The mode ({modes}) is the operator's own axis:"),
        _note(
            HEIGHT - 18, "it can overrule what is admitted, and changes nothing in this picture."
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _note(y: float, text: str) -> str:
    return f'<text class="note" x="{WIDTH / 2:g}" y="{y:g}">{escape(text)}</text>'


def _move(move: tuple[Phase, Phase], cause: str) -> str:
    route = ROUTES[move]
    start, bend, bend_back, end = (
        f"{x:g},{y:g}" for x, y in (route.start, route.bend, route.bend_back, route.end)
    )
    x, y = route.label
    spans = "".join(
        f'<tspan x="{x:g}" y="{y + index * LINE_PX:g}">{escape(text)}</tspan>'
        for index, text in enumerate(lines_of(cause))
    )
    return (
        f'<path class="move" d="M{start} C{bend} {bend_back} {end}" marker-end="url(#head)"/>\n'
        f'<text class="label" style="text-anchor: {route.anchor}">{spans}</text>'
    )


def _node(phase: Phase, node: Node) -> str:
    box = node.box
    return (
        f'<g class="node {phase.value}">'
        f'<rect x="{box.left:g}" y="{box.top:g}" width="{NODE_WIDTH}" height="{NODE_HEIGHT}" rx="12"/>'
        f'<text class="name" x="{node.x:g}" y="{node.y - 4:g}">{phase.name}</text>'
        f'<text class="meaning" x="{node.x:g}" y="{node.y + 18:g}">{escape(node.meaning)}</text></g>'
    )


def main() -> int:
    """Write the picture, or check it."""
    parser = argparse.ArgumentParser(description="Draw docs/img/states.svg from _core/machine.py.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if outdated")
    options = parser.parse_args()
    if wrong := complaints():
        print("scripts/draw_states.py cannot draw the states:", *wrong, sep="\n  ", file=sys.stderr)
        return 1
    drawn = picture()
    if not options.check:
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        PICTURE.write_text(drawn, encoding="utf-8")
    elif not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != drawn:
        print(
            "docs/img/states.svg does not show LEGAL_MOVES of _core/machine.py; "
            "run: .venv/bin/python scripts/draw_states.py",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
