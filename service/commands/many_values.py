"""A command class whose options take many values: `--data A B`."""

from typing import Any

from typer.core import TyperCommand


class ManyValues(TyperCommand):
    """A command whose repeatable options take many values: `--data A B` is `--data A --data B`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's Context
        """Repeat the option before each of its values, and let click parse the result."""
        repeatable = {name for p in self.params if getattr(p, "multiple", False) for name in p.opts}
        spread: list[str] = []
        option, values = "", 0
        for arg in args:
            if arg.startswith("-"):
                option, values = arg, 0
            else:
                values += 1
                if option in repeatable and values > 1:
                    spread.append(option)
            spread.append(arg)
        return super().parse_args(ctx, spread)
