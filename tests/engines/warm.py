"""Runs drive scripts of one engine in forked children of a process that has imported the engine once.

    VENV/bin/python warm.py FOLDER MODULE...          (FOLDER: the engine's drive scripts)

A job is a line on stdin: a JSON list [script module, result file, argument...]; the answer on stdout is the exit code.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Model types whose checkpoints bring their config class as remote code, and a class of transformers to stand in.
REMOTE_CONFIGS = {"mimo": "Qwen2Config", "mimo_v2": "PreTrainedConfig"}


def register_configs() -> None:
    """Makes the engines accept those checkpoints without their code."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    for name, base in REMOTE_CONFIGS.items():
        if name not in CONFIG_MAPPING and hasattr(transformers, base):
            found = type(base, (getattr(transformers, base),), {"model_type": name})
            transformers.AutoConfig.register(name, found)


@contextmanager
def casts() -> Iterator[set[str]]:
    """Pairs of dtypes of copies that read quantized bytes as plain numbers: the scales were dropped."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    packed = (torch.float8_e4m3fn, torch.uint8, torch.int8)
    found: set[str] = set()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.ops.aten.copy_.default and args[1].dtype in packed and args[1].dim() > 1:
                target = args[0].dtype
                if target in (torch.bfloat16, torch.float16, torch.float32) and args[0].numel() > 1:
                    found.add(f"{args[1].dtype} -> {target}".replace("torch.", ""))
            return function(*args, **(kwargs or {}))

    with Watch():
        yield found


def child(module: Any, result: str, arguments: list[str]) -> int:
    """Runs a script's `main` (or the `load` of the SGLang one) with stdout in a file."""
    handle = os.open(result, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    try:
        if hasattr(module, "main"):
            return int(module.main(arguments) or 0)
        settings = dict(text.split("=", 1) for text in arguments[2:])
        with casts() as found:
            body, _ = module.load(arguments[0], arguments[1], **settings)
        print(json.dumps({**body, "casts": sorted(found)}), flush=True)
    except SystemExit as stop:
        return int(stop.code or 0) if isinstance(stop.code, int | None) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    folder, *modules = sys.argv[1:]
    sys.path.insert(0, folder)
    sys.argv = ["warm"]
    loaded = {}
    for name in modules:
        loaded[name] = importlib.import_module(name)
        for prepare in ("boot", "widen"):
            getattr(loaded[name], prepare, lambda: None)()
    register_configs()
    for line in sys.stdin:
        script, result, *arguments = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = child(loaded[script], result, arguments)
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
