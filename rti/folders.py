"""Where a model lies: a local folder, or one that a plug-in's package ships."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from rti.errors import ConfigError

PACKAGED = ":"
"""`package:folder` names a folder that a plug-in ships, e.g. "rti_pocket:base"."""


def model_folder(path: str) -> Path:
    """The folder that `[model] path` names.

    Raises:
        ConfigError: when there is no such folder.
    """
    if not path:
        raise ConfigError(
            "[model] path is empty: give a Hugging Face folder, or 'rti_pocket:base' for the "
            "pocket worlds' base model."
        )
    folder = Path(path)
    if PACKAGED in path and not folder.exists():
        package, _, inner = path.partition(PACKAGED)
        try:
            folder = Path(str(resources.files(package).joinpath(inner)))
        except ModuleNotFoundError as error:
            raise ConfigError(f"[model] path = {path!r}: no package {package!r}.") from error
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"[model] path = {path!r}: no config.json in there. It must be a local Hugging Face "
            "folder (config.json, *.safetensors, tokenizer files); nothing is downloaded."
        )
    return folder
