"""The live page, `privstream watch`: a public view of what any consumer can see, and one for operators beside it."""

from agents.readers.watch.server import LivePage, serve

__all__ = ["LivePage", "serve"]
