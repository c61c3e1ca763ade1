"""Too few file descriptors: every connection and every file of a state table takes one, and where none is left neither
disk nor broker is to blame.
"""

from __future__ import annotations

import errno
import resource

from agents.kafka.lifecycle.causes import causes
from schemas.errors import DescriptorsError


def no_descriptors(error: BaseException) -> DescriptorsError | None:
    """What an error says, or one that it was raised from, where that is it."""
    for seen in causes(error):
        if isinstance(seen, DescriptorsError):
            return seen
        if isinstance(seen, OSError) and seen.errno in (errno.EMFILE, errno.ENFILE):
            return too_few()
    return None


def too_few() -> DescriptorsError:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = "no limit" if hard == resource.RLIM_INFINITY else str(hard)
    return DescriptorsError(
        f"no file descriptor is left: this process may have {soft} files and connections open at a time (it may be "
        f"raised up to {most}), or the machine has no more of them"
    )
