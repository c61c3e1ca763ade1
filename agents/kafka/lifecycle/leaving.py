"""How a worker ends, always within a bounded time of being asked to and with a last line that says why; or begins anew.

Signals are waited for by a thread of its own and blocked in all others: neither a busy event loop nor a library that
waits for ever delays it, and while nobody waits they stay with the process, through the change to another program image
too. The process ends by `os._exit` after its last words: what libraries would still say while an interpreter is taken
apart ("Event loop is closed") helps nobody. Nothing is lost by it, a worker may be killed at any time.

Beginning anew helps where something passes. What is met again each time must be said, with what to do, and seen by
`privstream status`; and what nobody foresaw ends the worker after a few times instead of turning for ever (`Lives`).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, MutableMapping
from dataclasses import asdict, dataclass, replace
from typing import NoReturn, cast

import orjson

from agents.kafka.lifecycle.advice import advice
from schemas.errors import HangingTransactionError, RefusalError, UnforeseenAnswerError

log = logging.getLogger(__name__)


LIMIT_S = 9.0
"""How long a worker may take to leave in good order; with the end of the process it is gone after ten seconds."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)
BEAT_S = 1.0
NO_MORE = signal.SIGUSR2  # to the listening thread, from this process alone


class Leaving:
    """How a worker leaves, from `install` on. Before `serves` is called a signal ends the process at once."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._lock = threading.RLock()
        self._asked: Callable[[], object] | None = None
        self._reason: str | None = None
        self._leaves = False
        self.asked = False
        self._late = False
        self._listener: threading.Thread | None = None
        self._listens = True

    def install(self) -> None:
        """Listen for signals. For the main thread, before any other begins: threads inherit what is blocked. Signals
        that came between two lives of this process are taken in now.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, (*SIGNALS, NO_MORE))
        self._listener = threading.Thread(target=self._listen, name="signals", daemon=True)
        self._listener.start()
        for number in SIGNALS:
            signal.signal(number, self._pass_on)

    def _pass_on(self, number: int, _: object) -> None:
        """Handle, in the main thread, a signal that a thread older than `install`, which does not block it, took."""
        if self._listener is None or not self._listens:
            self.end(0)
        signal.pthread_kill(cast(int, self._listener.ident), number)

    def _listen(self) -> None:
        while (number := _next_signal()) in SIGNALS or self._listens:
            if number in SIGNALS:
                self._on_signal(signal.Signals(number).name)

    def _listen_no_more(self) -> None:
        """Stop listening: when this returns, a signal has been noticed or stays with the process."""
        if self._listener is not None:
            self._listens = False
            signal.pthread_kill(cast(int, self._listener.ident), NO_MORE)
            self._listener.join()

    def _on_signal(self, name: str) -> None:
        if self.asked:
            return
        self.asked = True
        with self._lock:
            if self._asked is None:
                log.info("asked to leave (%s) while nothing was under way", name)
                self.end(0)
            log.info("asked to leave (%s)", name)
            self._asked()
        self.begin(None)

    def serves(self, asked: Callable[[], object]) -> None:
        """Call `asked` on a signal from now on, in another thread; the worker then has some seconds."""
        with self._lock:
            self._asked = asked

    def waits(self) -> None:
        """Let a signal end the process at once again: nothing is under way any more."""
        with self._lock:
            self._asked = None

    def begin(self, reason: str | None) -> None:
        """Begin to leave: from now on the worker's time runs. `reason` is the error that ends it, None without one."""
        with self._lock:
            self._reason = self._reason or reason
            if not self._leaves:
                self._leaves = True
                threading.Thread(target=self._limit, name="limit of leaving", daemon=True).start()

    def _limit(self) -> None:
        time.sleep(self._limit_s)
        with self._lock:
            self._late = True
            if self._reason is None:
                log.warning(
                    "the worker could not leave in good order within %.0f s and ends without: nothing is lost, its "
                    "partitions move on when its session ends",
                    self._limit_s,
                )
            self.end(1 if self._reason else 0)

    def end(self, code: int) -> NoReturn:
        """Say the last words and end the process."""
        with self._lock:
            if self._reason is not None:
                log.critical("STOPPED: %s", self._reason)
            elif code == 0 and not self._late:
                log.info("the worker has left")
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def again(self) -> NoReturn:
        """Begin anew as another program image of the same process: as after a crash, and no supervisor need see it.

        Signals that come meanwhile are noticed by the new image.
        """
        self._listen_no_more()
        with self._lock:
            if self.asked:
                self.end(0)
            logging.shutdown()
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606


def _next_signal() -> int:
    """Wait for one. Once a second this thread wants Python's lock: that is when the main thread notices a signal which
    a thread of a native library took. A loop that never gives the lock away would go on without.
    """
    while hasattr(signal, "sigtimedwait"):
        found = signal.sigtimedwait((*SIGNALS, NO_MORE), BEAT_S)
        if found is not None:
            return found.si_signo
    return signal.sigwait((*SIGNALS, NO_MORE))


SHORT_S = 60.0  # a life that is shorter makes the next one wait
MOST_S = 30.0
LONG_S = 600.0
"""A life that was longer has come further: what ended it is not what ended the one before."""
MOST_ALIKE = 5
VARIABLE = "_PRIVSTREAM_LIVES"


@dataclass(frozen=True, slots=True)
class Lives:
    """The lives of this worker before the present one; they go with the process from one life to the next.

    Attributes:
        short: in a row that were short. alike: in a row that ended for the same reason, soon; `kind` tells which.
        told: whether `privstream status` is to say what this worker meets again and again.
    """

    short: int = 0
    alike: int = 0
    kind: str = ""
    told: bool = False

    @classmethod
    def before(cls, environment: MutableMapping[str, str] = os.environ) -> Lives:
        """Return those that an earlier image of this process has lived."""
        return cls(**orjson.loads(environment.get(VARIABLE, "{}")))

    def keep(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Keep them for the next image of this process."""
        environment[VARIABLE] = orjson.dumps(asdict(self)).decode()

    def ended(self, error: BaseException, life_s: float) -> Lives:
        """Return them with one more, which an error ended after so many seconds."""
        kind = f"{advice(error).section}: {type(error).__name__}"
        alike = self.alike + 1 if kind == self.kind and life_s < LONG_S else 1
        now = Lives(self.short + 1 if life_s < SHORT_S else 0, alike, kind)
        lasts = isinstance(error, (HangingTransactionError, RefusalError))  # for long before it was an error
        return replace(now, told=alike >= (1 if lasts else MOST_ALIKE))

    def over(self, error: BaseException) -> bool:
        """Return whether there is to be no further one."""
        return self.alike >= MOST_ALIKE and isinstance(error, UnforeseenAnswerError)

    @property
    def pause_s(self) -> float:
        """Seconds to wait between two short lives, more each time."""
        return min(2.0 ** min(self.short - 1, 10), MOST_S) if self.short > 1 else 0.0

    def __str__(self) -> str:
        return f"{self.alike} times in a row"
