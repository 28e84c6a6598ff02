"""The first signal asks the run to stop, the second stops it at once."""

import signal
import threading

import pytest

from minerva.errors import TerminatedError
from minerva.runs.signals import StopSignals

BOTH = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.parametrize("number", BOTH)
def test_the_first_signal_is_noted_and_the_second_interrupts(number: signal.Signals) -> None:
    with StopSignals() as signals:
        assert not signals.received
        signal.raise_signal(number)
        assert signals.received
        assert signals.number is number
        with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else TerminatedError):
            signal.raise_signal(number)


@pytest.mark.parametrize("number", BOTH)
def test_after_the_block_signals_do_what_they_did_before(number: signal.Signals) -> None:
    heard: list[int] = []
    before = signal.signal(number, lambda received, frame: heard.append(received))
    try:
        with StopSignals() as signals:
            signal.raise_signal(number)
        assert (signals.received, heard) == (True, [])
        signal.raise_signal(number)
        assert heard == [number]
    finally:
        signal.signal(number, before)


def test_in_another_thread_signals_are_left_alone() -> None:
    handlers: list[object] = []

    def train() -> None:
        with StopSignals():
            handlers.extend(signal.getsignal(number) for number in BOTH)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(number) for number in BOTH]
