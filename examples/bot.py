"""A bot: scan an organisation of the Hub and open a pull request for each checkpoint that has a safe repair.

    HF_TOKEN=... python examples/bot.py ORG --state scan.jsonl [--most 10] [--dry-run]

Made to run on a schedule (examples/workflows/scan-bot.yml). `mtpfix scan --state` goes on where a run was stopped.
`mtpfix apply --create-pr` reports a pull request that is open already, updates an own one that is stale, and respects
one that was closed: running this twice opens nothing twice. Exit code 1 where a proposal failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MTPFIX = (sys.executable, "-m", "mtpfix")


def scanned(organisation: str, state: Path) -> Iterator[dict[str, str]]:
    """A row for each repository: what `scan` keeps in its state file."""
    done = subprocess.run([*MTPFIX, "scan", organisation, "--state", str(state), "--exit-zero"], check=False)
    if done.returncode:
        sys.exit(done.returncode)
    for line in state.read_text("utf-8").splitlines():
        row = json.loads(line)
        if "repository" in row:
            yield row


def propose(repository: str, dry_run: bool) -> bool:
    """Open the pull request, or show it; whether that went well."""
    print(f"== {repository}", flush=True)
    more = ["--dry-run"] if dry_run else ["--yes"]
    code = subprocess.run([*MTPFIX, "apply", repository, "--create-pr", *more], check=False).returncode
    return code in ((0, 1) if dry_run else (0,))


def main() -> int:
    """Scan, then propose; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("organisation")
    parser.add_argument("--state", type=Path, required=True, help="where the rows of the scan are kept")
    parser.add_argument("--most", type=int, default=10, help="at most so many proposals in a run")
    parser.add_argument("--dry-run", action="store_true", help="show the diffs and descriptions, send nothing")
    asked = parser.parse_args()
    rows = [row for row in scanned(asked.organisation, asked.state) if row["status"] == "fixable"]
    went = [propose(row["repository"], asked.dry_run) for row in rows[: asked.most]]
    print(f"{len(rows)} fixable, {sum(went)} of {len(went)} proposed")
    return 0 if all(went) else 1


if __name__ == "__main__":
    sys.exit(main())
