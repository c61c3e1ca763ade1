"""Virtual time, and processes whose event loops run on it.

One heap of events decides what happens next; each simulated process has an asyncio loop of its own, which is run when a
timer of it is due or the network brings something. So a process can be stopped (its loop is not run) or killed (never
again, nothing is tidied up), and everything follows from the seed. Inside a process asyncio's own order of callbacks
holds; chance comes from the times at which frames arrive.
"""

from __future__ import annotations

import asyncio
import asyncio.events
import contextvars
import heapq
import itertools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVarTuple

EPOCH_S = 1_577_836_800.0  # 2020-01-01 UTC: where virtual wall clocks begin
MOST_CALLBACKS = 100_000  # at one instant; more is a loop that never waits
LEAST_WAIT_S = 1e-6
Ts = TypeVarTuple("Ts")


class Timeline:
    """The only clock. `now` is in seconds since the simulation began."""

    def __init__(self) -> None:
        self.now = 0.0
        self.running: Process | None = None
        self._events: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._numbers = itertools.count()

    def at(self, when: float, call: Callable[..., Any], *args: Any) -> None:
        """Let `call` happen at `when`, or now where that is past; in the order of asking where times are equal."""
        heapq.heappush(self._events, (max(when, self.now), next(self._numbers), call, args))

    def after(self, delay: float, call: Callable[..., Any], *args: Any) -> None:
        self.at(self.now + delay, call, *args)

    def run(self, until: float) -> None:
        """Everything that happens up to `until`."""
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, call, args = heapq.heappop(events)
            call(*args)
        self.now = until


class NumberedFuture(asyncio.Future):
    """Hashed by a number: sets of futures must be walked in the same order in each run. Most are never hashed."""

    numbers = itertools.count(1)
    _number = 0

    def __hash__(self) -> int:
        if not self._number:
            self._number = next(self.numbers)
        return self._number


class NumberedTask(asyncio.Task):
    """The same for tasks; asyncio keeps all of them in a set."""

    _number = 0

    def __hash__(self) -> int:
        if not self._number:
            self._number = next(NumberedFuture.numbers)
        return self._number


class Process(asyncio.BaseEventLoop):
    """An event loop that lives on a timeline and dies like a process.

    Attributes:
        skew_s: what its wall clock is ahead. Its monotonic clock is never wrong.
        on_end: called once it is dead, however it died.
    """

    def __init__(self, timeline: Timeline, name: str, chance: random.Random) -> None:
        self.timeline = timeline
        super().__init__()
        self.name = name
        self.chance = chance
        self.alive = True
        self.skew_s = 0.0
        self.failures: list[str] = []
        self.on_end: Callable[[Process], None] = lambda process: None
        self.armed: tuple[str, int, Callable[[Process], None]] | None = None
        self._stopped_until = 0.0
        self._wake_at = float("inf")
        self._task_factory = lambda loop, coro, **settings: NumberedTask(coro, loop=loop, **settings)
        self._context = contextvars.copy_context()

    # --- what asyncio asks of a loop ------------------------------------------------------------------------------

    def time(self) -> float:
        return self.timeline.now

    def create_future(self) -> NumberedFuture:
        return NumberedFuture(loop=self)

    get_debug = staticmethod(bool)  # False, at the price of a call in C: each future asks

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Any = None
    ) -> asyncio.TimerHandle:
        # Time passes while a program runs: who waits for the last picosecond would wait for ever on a clock at rest.
        timer = asyncio.TimerHandle(max(when, self.timeline.now + LEAST_WAIT_S), callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.timeline.now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass  # it goes when its time comes

    def run_in_executor(self, executor: Any, call: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """A thread: its work takes virtual time, and its result is there afterwards."""
        done = self.create_future()

        def work() -> None:
            if done.cancelled():
                return
            try:
                done.set_result(call(*args))
            except Exception as error:
                done.set_exception(error)

        self.call_later(self.thread_s(), work)
        return done

    def thread_s(self) -> float:
        """How long work in a thread takes; a slow engine takes minutes."""
        return self.chance.choice((0.001, 0.01, 0.05, 0.3))

    def is_running(self) -> bool:
        return self.timeline.running is self

    def is_closed(self) -> bool:
        return False

    def _check_closed(self) -> None:
        pass

    def _check_thread(self) -> None:
        pass

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        pass

    def __del__(self, *_: Any) -> None:
        pass

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self, main: Any) -> None:
        """Begin with the coroutine `main`; the process ends with it."""
        task = NumberedTask(main, loop=self)
        task.add_done_callback(self._main_ended)
        self._main = task
        self.wake(self.timeline.now)

    def _main_ended(self, task: Any) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(f"{type(error).__name__}: {error}")
        self.kill()

    def kill(self) -> None:
        """SIGKILL: nothing runs any more, nothing is said to anybody."""
        if self.alive:
            self.alive = False
            self.on_end(self)

    def stop_until(self, when: float) -> None:
        """SIGSTOP, and SIGCONT at `when`."""
        self._stopped_until = max(self._stopped_until, when)

    @property
    def stopped_until(self) -> float:
        return self._stopped_until

    def pass_by(self, place: str) -> None:
        """A named place in the program; what is armed for it happens."""
        if self.armed is not None and self.armed[0] == place:
            name, hits, act = self.armed
            self.armed = (name, hits - 1, act) if hits > 1 else None
            if hits <= 1:
                act(self)

    def receive(self, call: Callable[..., Any], *args: Any) -> None:
        """Something from outside for this process."""
        if self.alive:
            self.call_soon(call, *args)
            self.wake(self.timeline.now)

    def wake(self, when: float) -> None:
        when = max(when, self._stopped_until)
        if when < self._wake_at:
            self._wake_at = when
            self.timeline.at(when, self._turn, when)

    def _turn(self, when: float) -> None:
        if when != self._wake_at or not self.alive:
            return
        self._wake_at = float("inf")
        if self.timeline.now < self._stopped_until:
            self.wake(self._stopped_until)
            return
        timeline, ready, scheduled = self.timeline, self._ready, self._scheduled  # type: ignore[attr-defined]
        timeline.running = self
        asyncio.events._set_running_loop(self)
        try:
            for _ in range(MOST_CALLBACKS):
                while scheduled and (scheduled[0]._cancelled or scheduled[0]._when <= timeline.now):
                    handle = heapq.heappop(scheduled)
                    handle._scheduled = False
                    if not handle._cancelled:
                        ready.append(handle)
                if not ready or not self.alive or timeline.now < self._stopped_until:
                    break
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
            else:
                raise AssertionError(f"{self.name} never waits")
        finally:
            asyncio.events._set_running_loop(None)
            timeline.running = None
        if self.alive:
            if ready:
                self.wake(timeline.now + LEAST_WAIT_S)
            elif scheduled:
                self.wake(scheduled[0]._when)


@contextmanager
def virtual_clocks(timeline: Timeline) -> Iterator[None]:
    """`time.time`, `time_ns` and `monotonic` tell the time of the timeline, and of the process that asks."""
    kept = time.time, time.time_ns, time.monotonic

    def wall() -> float:
        running = timeline.running
        return EPOCH_S + timeline.now + (0.0 if running is None else running.skew_s)

    time.time, time.time_ns, time.monotonic = wall, lambda: int(wall() * 1e9), lambda: timeline.now
    try:
        yield
    finally:
        time.time, time.time_ns, time.monotonic = kept
