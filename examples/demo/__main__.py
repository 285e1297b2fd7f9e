"""The demo, which `make demo` runs: three pools, and the console on a story of two minutes.

The service has a port and a data folder of its own, and takes no other setting from outside: it
touches no data of other services.
"""

import logging
import os
import socket
import time
import webbrowser
from contextlib import suppress
from pathlib import Path
from threading import Thread

from turnwise import Client, ClientError
from turnwise.service.cli.serve import serve

POOLS = Path(__file__).parent
FOLDER = ".turnwise/demo"


def main() -> None:
    """Start the service; meanwhile a thread waits for it, to load the pools."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for name in [name for name in os.environ if name.startswith("TURNWISE_")]:
        del os.environ[name]
    os.environ |= {"TURNWISE_DATA_DIR": FOLDER, "TURNWISE_LOG_LEVEL": "warning"}
    logging.getLogger("turnwise.audit").disabled = True  # no pool here is worth a line
    print("Starting. The first time this takes half a minute.", flush=True)
    Thread(target=open_console, args=(f"http://127.0.0.1:{port}",), daemon=True).start()
    serve(host="127.0.0.1", port=port)


def open_console(url: str) -> None:
    """Load the pools as soon as the service is ready, and open the console."""
    with Client(url) as client:
        while True:
            with suppress(ClientError):
                client.ready()
                break
            time.sleep(0.1)
        for file in sorted(POOLS.glob("*.jsonl")):
            pool = client.pool(file.stem)
            pool.create()
            pool.load(file)
    page = f"{url}/#story"
    print(f"The story is at {page} (Ctrl-C ends the demo)", flush=True)
    webbrowser.open(page)


if __name__ == "__main__":
    main()
