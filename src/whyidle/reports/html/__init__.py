"""The report as one self-contained HTML file: no network, no dependency, data embedded as JSON.

Names in a trace are untrusted text. Three things keep them inert: the JSON holds no character that
could end its script element, the page's scripts only ever set ``textContent``, and a content
security policy lets nothing run but those scripts, named by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

from whyidle.reports.html.content import page_data
from whyidle.reports.model import Report
from whyidle.reports.words import plain

# In the order in which they take effect.
_STYLES = ("palette.css", "style.css", "parts.css")
_SCRIPTS = ("format.js", "ledger.js", "page.js", "drawing.js", "told.js", "picture.js")


def write_html(report: Report, path: Path) -> None:
    """Write the report to ``path`` as UTF-8. Raises OSError where that is not possible."""
    data = render_html(report).encode("utf-8")  # complete before the file is touched
    Path(path).write_bytes(data)


def render_html(report: Report) -> str:
    """The whole page as text. The same report always gives the same text."""
    style = "\n".join(_part(name) for name in _STYLES)
    script = "\n".join(_part(name) for name in _SCRIPTS)
    kind = report.verdict.kind
    parts = {
        "POLICY": _policy(style, script),
        "TITLE": html.escape(_title(report)),
        "STYLE": style,
        "KIND": html.escape(kind),
        "SENTENCE": html.escape(plain(report.verdict.sentence)),
        "DATA": embedded(page_data(report)),
        "SCRIPT": script,
    }
    # One pass, so that nothing inside a part is taken for a place of another part.
    return re.sub(r"@@([A-Z]+)@@", lambda place: parts[place[1]], _part("template.html"))


def embedded(data: dict[str, Any]) -> str:
    """JSON for a script element: ASCII, and no "<", ">" or "&" that HTML could read.

    Raises ValueError on NaN or infinity, which no valid report holds.
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _part(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _title(report: Report) -> str:
    if not report.sources:
        return "whyidle"
    first = plain(Path(report.sources[0].path).name, 80)
    more = len(report.sources) - 1
    return f"{first} and {more} more - whyidle" if more else f"{first} - whyidle"


def _policy(style: str, script: str) -> str:
    """A content security policy that allows our own style and script, and nothing else."""
    return (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
