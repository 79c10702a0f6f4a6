"""What each rule of the published simulator is worth: time to train with that rule alone switched off.

SPARe at N = 200, r = 9, a checkpoint every 15 steps; replication at N = 200, r = 3, every 6 steps
(docs/spare.md). The last row switches off all of them, the first none.

    python benchmarks/spare_quirks.py [--json] [--seeds N]
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from prismcore.spare.life import LifeOptions, simulate
from prismcore.spare.life_options import QUIRKS

WAYS: dict[str, dict[str, Any]] = {
    "spare": {"redundancy": 9, "checkpoint_steps": 15},
    "replication": {"redundancy": 3, "checkpoint_steps": 6},
}


def row(without: list[str], seeds: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for policy, way in WAYS.items():
        options = {**way}
        if without == ["replication_interval_by_spare_mu"]:  # shows in the default interval alone
            del options["checkpoint_steps"]
        quirks = dict.fromkeys(without, False)
        result = simulate(LifeOptions(policy=policy, groups=200, quirks=quirks, seeds=seeds, **options))
        found[policy] = {
            "ttt_ratio": result.ttt_ratio.mean,
            "ci95": result.ttt_ratio.ci95,
            "availability": result.availability.mean,
        }
    return {"without": without, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [row(without, args.seeds) for without in ([], *([name] for name in QUIRKS), [*QUIRKS])]
    if args.json:
        print(json.dumps(rows))
        return
    print("| without | SPARe | availability | replication | availability |\n|---|---|---|---|---|")
    for found in rows:
        names = found["without"]
        cells = [names[0] if len(names) == 1 else "all" if names else "none"]
        for policy in WAYS:
            mean, ci95 = found[policy]["ttt_ratio"], found[policy]["ci95"]
            cells += [
                f"{mean:.3f}" if ci95 is None else f"{mean:.3f} ± {ci95:.3f}",
                f"{found[policy]['availability']:.1%}",
            ]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
