"""`python -m tests.hub FOLDER...`: each folder a repository org/NAME on a Hub of your own, until Ctrl-C."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from . import Hub


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hub", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="a checkpoint, or a folder of some")
    parser.add_argument("--org", default="org", help="the owner of the repositories (default: org)")
    parser.add_argument("--port", type=int, default=0)
    asked = parser.parse_args()
    with Hub(asked.port) as hub:
        for folder in asked.folders:
            below = sorted(path.parent for path in folder.glob("*/config.json"))
            for each in [folder] if (folder / "config.json").exists() else below:
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
