"""How long `predict` takes for 1,000 points, the process included: the table is a grid over models, GPUs and batches.

Run: .venv/bin/python benchmarks/predict.py
"""

from __future__ import annotations

import csv
import itertools
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
POINTS = 1000
RUNS = 5
TARGET_SECONDS = 1.0
_PROGRAM = """
import csv, sys
from goodput.perfmodel.points import RESULTS, predict_rows
with open(sys.argv[1], encoding="utf-8") as source:
    rows = list(csv.DictReader(source))
found = predict_rows(rows)
with open(sys.argv[2], "w", encoding="utf-8", newline="") as target:
    writer = csv.DictWriter(target, fieldnames=[*rows[0], *RESULTS])
    writer.writeheader()
    writer.writerows(found)
"""


def grid() -> list[dict[str, str]]:
    """1,000 different points; some do not fit, and are answered with a reason."""
    models = ("meta-llama/Llama-3.1-70B", "Qwen/Qwen3-32B", "openai/gpt-oss-120b", "MiniMaxAI/MiniMax-M2.5")
    systems = ("h100_sxm", "h200_sxm", "b200_sxm")
    lengths = (("1024", "1024"), ("8192", "1024"), ("1024", "8192"))
    batches = ("1", "4", "8", "16", "32", "64", "128", "256", "512")
    product = itertools.product(models, systems, ("fp8", "fp4"), ("1", "2", "4", "8"), lengths, batches)
    rows = [
        {
            "model_path": model,
            "system": system,
            "precision": precision,
            "tp_size": tensor,
            "pp_size": "1",
            "attention_dp_size": "1",
            "moe_ep_size": "1",
            "isl": isl,
            "osl": osl,
            "batch_size": batch,
        }
        for model, system, precision, tensor, (isl, osl), batch in product
    ]
    return rows[:: len(rows) // POINTS][:POINTS]


def main() -> int:
    """Exit code 1 if the median run takes longer than the target."""
    with TemporaryDirectory() as folder:
        source, target = Path(folder) / "points.csv", Path(folder) / "predicted.csv"
        rows = grid()
        with source.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        seconds = []
        for _ in range(RUNS):
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", _PROGRAM, str(source), str(target)],
                check=True,
                env={"PYTHONPATH": str(ROOT / "operator")},
            )
            seconds.append(time.perf_counter() - start)
        with target.open(encoding="utf-8") as file:
            answers = list(csv.DictReader(file))
    unknown = sum(1 for each in answers if each["reason"])
    median = sorted(seconds)[RUNS // 2]
    print(f"{len(answers)} points ({unknown} answered with a reason): median {median:.2f} s of {RUNS} processes")
    print("runs, s: " + ", ".join(f"{each:.2f}" for each in seconds))
    return int(median > TARGET_SECONDS or len(answers) != POINTS)


if __name__ == "__main__":
    sys.exit(main())
