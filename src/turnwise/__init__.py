"""Online response selection for conversations.

`from turnwise import Client` gives the client; it loads when it is first used. `turnwise.service`
is the service, the client and the command line, and `turnwise.models` the science behind them.
Both folders are at the top of the repository, and this package links to them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnwise.service.client import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        """Return a class that the client exports."""
        if name[0].isupper():  # as the names of classes are, and those of submodules are not
            from turnwise.service import client  # noqa: PLC0415

            if name in client.__all__:
                return getattr(client, name)
        raise AttributeError(f"module 'turnwise' has no attribute '{name}'")

    def __dir__() -> list[str]:
        """Return the names of the package, and the classes that the client exports."""
        from turnwise.service import client  # noqa: PLC0415

        return [*globals(), *client.__all__]
