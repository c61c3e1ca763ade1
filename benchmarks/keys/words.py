"""Make a stream of words of a git history: `python -m benchmarks.keys.words FOLDER.git words.csv.gz`.

A row is the first time that an author used a word in the subject line of a commit (merges are left out): `day` since
1970, `user`, `word`. Authors are numbers in the order of their first commits; no name or address is written. FOLDER is
any clone, bare ones too (`git clone --bare https://github.com/ansible/ansible`); `make bench-keys` looks for the file
in ../shared/data/commit_words.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

WORD = re.compile(r"[a-z][a-z0-9_+-]{2,24}")
SECONDS = 86_400


def rows(commits: Iterable[tuple[int, str, str]]) -> Iterator[tuple[int, int, str]]:
    """Return days, users and words of commits: seconds since 1970, author, subject; in any order."""
    users: dict[str, int] = {}
    seen: set[tuple[int, str]] = set()
    for seconds, author, subject in sorted(commits):
        user = users.setdefault(author.lower(), len(users))
        for word in dict.fromkeys(WORD.findall(subject.lower())):
            if (user, word) not in seen:
                seen.add((user, word))
                yield seconds // SECONDS, user, word


def commits_of(folder: Path) -> Iterator[tuple[int, str, str]]:
    """Read a git history."""
    told = ("git", "-C", str(folder), "log", "--no-merges", "--format=%at%x1f%ae%x1f%s")
    for line in subprocess.run(told, check=True, capture_output=True).stdout.decode("utf-8", "replace").split("\n"):
        parts = line.split("\x1f")
        if len(parts) == 3:
            yield int(parts[0]), parts[1], parts[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    with gzip.open(arguments.out, "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("day", "user", "word"))
        writer.writerows(rows(commits_of(arguments.folder)))


if __name__ == "__main__":
    main()
