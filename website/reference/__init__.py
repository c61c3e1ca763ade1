"""The reference: pages made from the code at each build, never committed, so they cannot differ from it."""

from __future__ import annotations

from website.reference import commands, configuration, library, metrics, reasons, records

HEAD = "<!-- Made from the code by website/reference at each build. -->\n\n"


def pages() -> dict[str, str]:
    """Return the Markdown of each page, by its place below docs/."""
    made = {
        "configuration.md": configuration.page(),
        "commands.md": commands.page(),
        "records.md": records.page(),
        "reasons.md": reasons.page(),
        "metrics.md": metrics.page(),
        "library.md": library.page(),
    }
    return {f"reference/{name}": text.replace("\n\n", "\n\n" + HEAD, 1) for name, text in made.items()}
