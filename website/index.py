"""The first page: the README, as it is, with its links as the site has them."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"(!?\[[^\]\n]*\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def page() -> str:
    """Return README.md, seen from docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    def seen(found: re.Match[str]) -> str:
        link = found[2]
        if ":" not in link and (ROOT / link).exists():
            link = os.path.relpath(link, "docs")
        return found[1] + link + (found[3] or "") + found[4]

    return "---\ntitle: privstream\n---\n" + _LINK.sub(seen, text)
