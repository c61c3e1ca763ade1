"""`privstream init`."""


def init() -> None:
    """x"""
