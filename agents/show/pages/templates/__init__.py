"""Pages as Jinja templates, beside this file. Whatever is put in is escaped; a name that is not there is an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jinja2


def render(name: str, *, filters: Mapping[str, Callable[[Any], str]] | None = None, **values: Any) -> str:
    """A template of this folder as a page that loads nothing from elsewhere."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, "."),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters or {})
    return environment.get_template(name).render(**values)
