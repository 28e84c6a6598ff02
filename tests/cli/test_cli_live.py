"""`minerva train` in a real terminal: what stays in place, and what is left when it is over."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pyte
import pytest
from needs import all_but_first_slow
from tiny_runs import train_command


def typed(words: list[str], columns: int, **environment: str) -> tuple[int, bytes]:
    """Exit code of `minerva ...` in a terminal of so many columns, and all that was written to it."""
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    settings = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    child = subprocess.Popen(
        [sys.executable, "-m", "minerva", *words],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env={**settings, "TERM": "xterm-256color", **environment},
    )
    os.close(inside)
    written = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # how Linux says that nobody writes any more
            break
        if not part:
            break
        written += part
    os.close(terminal)
    return child.wait(), written


def screen(written: bytes, columns: int) -> list[str]:
    display = pyte.Screen(columns, 400)
    pyte.ByteStream(display).feed(written)
    return [line.rstrip() for line in display.display if line.strip()]


@pytest.mark.parametrize(("columns", "no_color"), all_but_first_slow([(44, True), (100, False)]))
def test_a_run_is_watched_in_place_and_ends_with_its_folder(columns: int, no_color: bool, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    environment = {"NO_COLOR": "1"} if no_color else {}
    code, written = typed(train_command(folder), columns, **environment)
    assert code == 0
    last = written.rindex(b"512 of 512")
    during = screen(written[: written.index(b"best", last) + 20], columns)
    text = " ".join(" ".join(during).split())
    assert re.search(r"100 % 512 of 512 [\d,]+ steps/s 0:00 left", text)
    assert text.count("512 of 512") == 1  # nothing is left of the pictures before
    assert re.search(r"training -[\d,.]+ evaluated -[\d,.]+ best -[\d,.]+", text)
    after = screen(written, columns)
    assert not any("steps/s" in line for line in after)
    assert "".join(after).endswith(f"run: {folder}")
    coloured = re.search(rb"\x1b\[[\d;]*3[0-7]|\x1b\[9[0-7]|\x1b\[38", written) is not None
    assert coloured is not no_color
