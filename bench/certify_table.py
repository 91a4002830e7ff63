"""The certificates in a folder as a table in Markdown: python certify_table.py DIR"""

import json
import sys
from pathlib import Path

print("| drawn by | setting | K | tokens | verdict | smallest p of the tests | total variation, split by the draft (95% bound) | would be found |")
print("|---|---|---|---|---|---|---|---|")
for path in sorted(Path(sys.argv[1]).glob("*-k*.json")):
    system, setting, k = path.stem.rsplit("-", 2)
    c = json.loads(path.read_text())
    tests = [t for t in c["tests"] if t["mode"] != "ars" and t["df"] > 0]
    split = next(t for t in tests if t["position"] == 0 and t["partition"] == "draft")
    print(
        f"| {system} | {setting} | {k[1:]} | {split['n']} | {c['verdict']} | {min(t['p'] for t in tests):.2g} of {len(tests)} |"
        f" {split['tv']:.4f} ({split['tv_upper']:.4f}) | {split['detectable']:.4f} |"
    )
