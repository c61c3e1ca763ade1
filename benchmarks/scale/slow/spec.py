"""Engine `slow`: the toy of the contract tests, with many keys and a pause in each step."""

from __future__ import annotations

import dataclasses
from typing import Literal

from toy.spec import SPEC as TOY
from toy.spec import AnythingDomain


class NumberedDomain(AnythingDomain):
    """`kind = "numbered"`: texts that end with eight digits."""

    kind: Literal["numbered"] = "numbered"


SPEC = dataclasses.replace(
    TOY, name="slow", domains={"numbered": NumberedDomain}, domain="slow.engine:domain", build="slow.engine:build"
)
