"""The public view. Nothing here can read anything but public topics: `tests/architecture/rules.py` says what it may
import, and its reader is given the names of public topics alone.
"""
