"""`turnwise evaluate`: measure models."""

import typer

from turnwise.service.commands.evaluate.best_worst import best_worst
from turnwise.service.commands.evaluate.confidence import confidence
from turnwise.service.commands.evaluate.heat_map import heat_map
from turnwise.service.commands.evaluate.journal import journal
from turnwise.service.commands.evaluate.long_term import long_term
from turnwise.service.commands.evaluate.next_utterance import next_utterance
from turnwise.service.commands.evaluate.ranking import build_ranking, ranking
from turnwise.service.commands.evaluate.short_term import short_term
from turnwise.service.commands.evaluate.similarity import multiple_choice, similarity
from turnwise.service.commands.many_values import ManyValues

evaluate = typer.Typer(help="Measure models.", no_args_is_help=True)
evaluate.command("next-utterance", cls=ManyValues)(next_utterance)
evaluate.command("short-term", cls=ManyValues)(short_term)
evaluate.command("long-term", cls=ManyValues)(long_term)
evaluate.command("ranking", cls=ManyValues)(ranking)
evaluate.command("journal", cls=ManyValues)(journal)
evaluate.command("build-ranking", cls=ManyValues)(build_ranking)
evaluate.command("confidence", cls=ManyValues)(confidence)
evaluate.command("similarity", cls=ManyValues)(similarity)
evaluate.command("multiple-choice", cls=ManyValues)(multiple_choice)
evaluate.add_typer(best_worst, name="best-worst")
evaluate.command("heat-map", cls=ManyValues)(heat_map)
