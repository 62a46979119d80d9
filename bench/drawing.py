"""What the drawings of this folder share: their colours, in light and in dark, and a line of text."""

from xml.sax.saxutils import escape

STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .page { fill: #ffffff; stroke: #d1d9e0 }
  .head { font-size: 17px; font-weight: 600 }
  .name { font-size: 14px; font-weight: 600 }
  .note { font-size: 12px; fill: #59636e }
  .axis { stroke: #d1d9e0 }
  .ours { fill: #0969da }
  .other { fill: #afb8c1 }
  .own { font-weight: 600 }
  .line { fill: none; stroke-width: 2 }
  .one { stroke: #59636e } .four { stroke: #0969da } .sixteen { stroke: #1a7f37 }
  .apart { stroke-dasharray: 5 4 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .page { fill: #0d1117; stroke: #3d444d }
    .note { fill: #9198a1 }
    .axis { stroke: #3d444d }
    .ours { fill: #4493f8 }
    .other { fill: #59636e }
    .one { stroke: #9198a1 } .four { stroke: #4493f8 } .sixteen { stroke: #3fb950 }
  }
"""


def text(x: float, y: float, words: str, kind: str = "", more: str = "") -> str:
    """A text element of an SVG; `kind` is its class, `more` further attributes."""
    attributes = " ".join(part for part in (f'class="{kind}"' if kind else "", more) if part)
    return f'<text x="{x:g}" y="{y:g}"{" " if attributes else ""}{attributes}>{escape(words)}</text>'
