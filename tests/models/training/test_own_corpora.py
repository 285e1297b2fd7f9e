import re

import pytest

from turnwise.models.data import read_dialogues
from turnwise.models.training.corpora import OWN_CORPORA, finder


@pytest.mark.parametrize("name", ["train", "plain"])
def test_the_everyday_dialogues_are_as_their_readme_says(name: str) -> None:
    dialogues = list(read_dialogues(finder([])(f"everyday/{name}.jsonl.xz")))
    utterances = [u.text for dialogue in dialogues for u in dialogue.utterances]
    assert len({dialogue.id for dialogue in dialogues}) == len(dialogues)
    assert len({dialogue.utterances for dialogue in dialogues}) == len(dialogues)
    assert min(len(dialogue.utterances) for dialogue in dialogues) >= 3
    assert all(text.isprintable() for text in utterances)
    readme = (OWN_CORPORA / "everyday" / "README.md").read_text(encoding="utf-8")
    counted = re.search(rf"`{name}\.jsonl\.xz` \| ([\d,]+) dialogues with ([\d,]+) utter", readme)
    assert counted
    assert [int(number.replace(",", "")) for number in counted.groups()] == [
        len(dialogues),
        len(utterances),
    ]
