"""The configuration files of a model's folder, in the form that every reader knows.

sentence-transformers 6 writes names of modules and of settings that its older versions do not know,
and embedding servers such as Infinity are built on those. It still reads the older form.
"""

import json
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

_MODES = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
_OLDER = "sentence_transformers.models"


def write_older_layout(folder: Path, model: SentenceTransformer) -> None:
    """Rewrite the files that `SentenceTransformer.save_pretrained` wrote for a model of texts.

    Only a transformer with pooling and, perhaps, normalisation has the older form; the files of any
    other model stay as they are.
    """
    modules = _read(folder / "modules.json")
    named = [module["type"].rpartition(".")[2] for module in modules]
    if named not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        return
    pooling = folder / modules[1]["path"] / "config.json"
    config = _read(pooling)
    chosen = config["pooling_mode"]
    flags = {f"pooling_mode_{mode}": mode.startswith(f"{chosen}_") for mode in _MODES[:3]}
    if not isinstance(chosen, str) or not any(flags.values()):
        return
    for module, name in zip(modules, named, strict=True):
        module["type"] = f"{_OLDER}.{name}"
    _write(folder / "modules.json", modules)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": model.max_seq_length})
    size = {"word_embedding_dimension": config["embedding_dimension"]}
    flags[f"pooling_mode_{_MODES[3]}"] = False
    _write(pooling, size | flags | {"include_prompt": config["include_prompt"]})


def _read(file: Path) -> Any:  # noqa: ANN401 - whatever the JSON holds
    return json.loads(file.read_text(encoding="utf-8"))


def _write(file: Path, value: object) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
