"""A bot: scan an organisation of the Hub and open a pull request for each checkpoint that has a safe repair.

    HF_TOKEN=... python examples/bot.py ORG --state scan.jsonl [--most 10] [--partly] [--dry-run]

Made to run on a schedule (examples/workflows/scan-bot.yml). A run that was stopped goes on with the rows of its state
file; without the file every repository is looked at anew. A pull request that is open already, or was closed, is left
alone and counts for nothing, so that running this twice opens nothing twice and every repository has its turn. Exit
code 1 where a proposal failed, 3 where the organisation could not be read.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import mtpfix

MTPFIX = (sys.executable, "-m", "mtpfix")
SENT = ("opened", "updated", "shown")


def scanned(organisation: str, state: Path) -> Iterator[dict[str, str]]:
    """A row for each repository: what `scan` keeps in its state file."""
    done = subprocess.run([*MTPFIX, "scan", organisation, "--state", str(state), "--exit-zero"], check=False)
    if done.returncode:
        sys.exit(done.returncode)
    for line in state.read_text("utf-8").splitlines():
        row = json.loads(line)
        if "repository" in row:
            yield row


def propose(repository: str) -> str:
    """What became of a proposal: `opened`, `updated`, `already-open`, `already-fixed`, `refused` or `failed`."""
    try:
        outcome = mtpfix.open_pr(repository)
    except mtpfix.MtpfixError as error:
        print(f"{repository}: {error}", file=sys.stderr, flush=True)
        return "failed"
    where = outcome.pull_request.url if outcome.pull_request else ""
    print(f"{repository}: {' '.join(part for part in (outcome.kind, where, outcome.reason) if part)}", flush=True)
    return outcome.kind


def show(repository: str) -> str:
    """The pull request on stdout; `shown`, or `failed`."""
    print(f"== {repository}", flush=True)
    done = subprocess.run([*MTPFIX, "apply", repository, "--create-pr", "--dry-run"], check=False)
    return "shown" if done.returncode in (0, 1) else "failed"


def main() -> int:
    """Scan, then propose; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("organisation")
    parser.add_argument("--state", type=Path, required=True, help="where the rows of the scan are kept")
    parser.add_argument("--most", type=int, default=10, help="at most so many pull requests in a run")
    parser.add_argument("--partly", action="store_true", help="also repairs after which something stays wrong")
    parser.add_argument("--dry-run", action="store_true", help="show the diffs and descriptions, send nothing")
    asked = parser.parse_args()
    wanted = ("fixable", "partly-fixable") if asked.partly else ("fixable",)
    found = [row["repository"] for row in scanned(asked.organisation, asked.state) if row["status"] in wanted]
    went: Counter[str] = Counter()
    for repository in found:
        if sum(went[kind] for kind in SENT) >= asked.most:
            break
        went[(show if asked.dry_run else propose)(repository)] += 1
    print(f"{len(found)} to repair: {', '.join(f'{count} {kind}' for kind, count in went.items()) or 'nothing sent'}")
    return 1 if went["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
