"""`python -m tests.hub FOLDER...`: each folder a repository org/NAME on a Hub of your own, until Ctrl-C."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from . import Hub


def checkpoints(folder: Path) -> list[Path]:
    """The folder, if it is one; else those in it."""
    if (folder / "config.json").exists():
        return [folder]
    return sorted(path.parent for path in folder.glob("*/config.json"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hub", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="a checkpoint, or a folder of some")
    parser.add_argument("--org", default="org", help="the owner of the repositories (default: org)")
    parser.add_argument("--port", type=int, default=0)
    asked = parser.parse_args()
    found = {folder: checkpoints(folder) for folder in asked.folders}
    if empty := [str(folder) for folder, those in found.items() if not those]:
        parser.error(f"no checkpoint in {', '.join(empty)}")
    with Hub(asked.port) as hub:
        for those in found.values():
            for each in those:
                print(hub.create(f"{asked.org}/{each.resolve().name}", each).id)
        print(f"\nexport HF_ENDPOINT={hub.url}")
        for token, user in hub.users.items():
            print(f"HF_TOKEN={token}  # {user.name}, may {user.role}", flush=True)
        seen = 0
        try:
            while True:
                time.sleep(0.2)
                for call in hub.calls[seen:]:
                    seen += 1
                    print(call, flush=True)
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
