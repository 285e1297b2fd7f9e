"""Starts `turnwise` at once: forks it off a process that has the libraries loaded.

To load them takes seconds of every command, and the pages have a dozen. What runs is the same
function in a process of its own, with the caller's arguments, folder, variables, files and signals.
All processes of a test run share the one that is forked.
"""

import fcntl
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import NoReturn

LOADED = (
    "turnwise.service.app.wiring",
    "turnwise.service.app.server",
    "turnwise.models.training.run",
    "matplotlib.pyplot",
)

_CALLER = """\
#!{python} -S
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as warm:
    warm.connect({address!r})
    said = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(warm, [said], [0, 1, 2])
    signal.signal(signal.SIGTERM, lambda number, _: warm.send(bytes([number])))
    ended = warm.recv(1)
sys.exit(ended[0] if ended else 1)
"""
_LARGEST = 1 << 18
"""Bytes of arguments and variables."""


def warm_command(folder: Path, owner: int) -> Path:
    """Return a folder with a `turnwise` in it, which lasts as long as the process `owner`.

    Whoever asks first for a folder starts what it needs; the others wait for that.
    """
    folder.mkdir(exist_ok=True)
    address = folder / "s"
    command = folder / "turnwise"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not address.exists():
            command.write_text(_CALLER.format(python=sys.executable, address=str(address)))
            command.chmod(0o700)
            # -P: `tests` has packages of the same names as the project.
            words = [sys.executable, "-P", __file__, str(address), str(owner)]
            process = Popen(words, stdin=DEVNULL, start_new_session=True)
            while not address.exists():
                assert process.poll() is None, "it did not start"
                time.sleep(0.01)
            process.returncode = 0  # it outlives this process, if that is not the owner
    return folder


def serve(address: str, owner: int) -> None:
    """Run commands until a process ends."""
    owned = os.pidfd_open(owner)
    for name in LOADED:
        import_module(name)
    import torch

    from turnwise.service.cli import connected

    torch.set_num_threads(1)
    gc.freeze()  # what is loaded is no garbage, for any of the forks

    connected.FIRST_ANSWER = 60.0  # a busy machine must not look like a service that is down
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address + "-")
        listener.listen()
        Path(address + "-").rename(address)  # there only when it listens
        sources = [listener.fileno(), owned]
        while listener.fileno() in select.select(sources, [], [])[0]:
            caller, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _attend(caller)
            caller.close()


def _attend(caller: socket.socket) -> NoReturn:
    """Run a caller's command: pass its signals on, end it with its caller, tell how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    said, files, _, _ = socket.recv_fds(caller, _LARGEST, 3)
    if (pid := os.fork()) == 0:
        caller.close()
        arguments, folder, variables = json.loads(said)
        _become(arguments, folder, variables, files)
    for file in files:
        os.close(file)
    ended = os.pidfd_open(pid)
    while ended not in select.select([caller.fileno(), ended], [], [])[0]:
        number = caller.recv(1)
        os.kill(pid, number[0] if number else signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    caller.send(bytes([os.waitstatus_to_exitcode(status) & 0xFF]))
    os._exit(0)


def _become(
    arguments: list[str], folder: str, variables: dict[str, str], files: Sequence[int]
) -> NoReturn:
    import torch

    from turnwise.service.cli.main import main

    # The first call after a fork replaces torch's pool of threads. Two threads that call at once,
    # as when weights are loaded, may find none.
    torch.set_num_threads(1)
    for standard, file in enumerate(files):
        os.dup2(file, standard)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["turnwise", *arguments]
    status: object = 1
    try:
        main()
        status = 0
    except SystemExit as end:
        status = end.code or 0
    except BaseException:  # an interpreter would print it too
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 1)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
