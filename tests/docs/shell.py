"""A shell for the commands of a page."""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Timer

_PATIENCE = 600.0
"""Seconds for a block: only so that one that hangs ends."""
_END = "\x04"
"""Ends the output of a block; with the status behind it, of the whole shell."""


class Shell:
    """One bash for all blocks of a page, so that functions, variables and jobs last."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._errors = folder / ".stderr"
        with self._errors.open("w") as errors:
            self._process = Popen(
                ["bash", "-eo", "pipefail"],  # noqa: S607 - the reader's own
                stdin=PIPE,
                stdout=PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self._send(f"trap 'printf \"{_END}%d\\n\" $?' EXIT")

    def run(self, block: str) -> str:
        """Return what a block prints; raise where one of its commands fails."""
        # The terminator goes with the block, in one piece that is read before it is run; no
        # command may read it as its own input.
        self._send(f"{{\n{block}\n}} </dev/null\nprintf '{_END}\\n'")
        watchdog = Timer(_PATIENCE, self._kill)
        watchdog.start()
        try:
            printed = "".join(self._until_the_end())
        finally:
            watchdog.cancel()
        return printed

    def close(self) -> None:
        """End the shell and every job that it left."""
        self._kill()
        self._process.wait()
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()

    def _send(self, commands: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{commands}\n")
        self._process.stdin.flush()

    def _until_the_end(self) -> Iterator[str]:
        assert self._process.stdout
        for line in self._process.stdout:
            printed, end, status = line.partition(_END)
            yield printed
            if end and status == "\n":
                return
            if end:  # not the end of the output: the shell's jobs may print for ever
                break
        how = f"the shell ended with {self._process.wait()}"
        raise AssertionError(f"a command failed, {how}:\n{self._errors.read_text()}")

    def _kill(self) -> None:
        with suppress(ProcessLookupError):  # all of them have ended
            os.killpg(self._process.pid, signal.SIGKILL)
