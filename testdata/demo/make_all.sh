#!/bin/sh
# Makes the demo pair and dataset again: sh make_all.sh WORK_DIR
#
# WORK_DIR gets the two Python environments, the training text and the trained
# checkpoints in Hugging Face form. Everything else is written here.
# PYTHON, PYTHON_OPTIMUM name environments that exist already; TARGET_MINUTES and
# DRAFT_MINUTES set the length of the training.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=${1:?usage: sh make_all.sh WORK_DIR}
mkdir -p "$work"
work=$(cd "$work" && pwd)
cd "$here"

if [ -z "${PYTHON:-}" ]; then
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install -q -r requirements.txt
  PYTHON="$work/venv/bin/python"
fi
if [ -z "${PYTHON_OPTIMUM:-}" ]; then
  python3 -m venv "$work/venv-optimum"
  "$work/venv-optimum/bin/pip" install -q -r requirements-optimum.txt
  PYTHON_OPTIMUM="$work/venv-optimum/bin/python"
fi

# Large tensors are reused instead of being mapped anew, and waiting threads sleep: 2-3 times as fast on a busy machine.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=8000000000 MALLOC_TOP_PAD_=268435456 OMP_WAIT_POLICY=PASSIVE

"$PYTHON" make_problems.py train "$work/shown.jsonl" --count 20000 --seed 21
"$PYTHON" make_problems.py train "$work/plain.jsonl" --count 20000 --seed 22 --plain
cat "$work/shown.jsonl" "$work/plain.jsonl" > "$work/train.jsonl"
"$PYTHON" make_problems.py minieval minieval.parquet --count 80 --seed 7
"$PYTHON" make_tokenizer.py "$work/train.jsonl" "$work"
"$PYTHON" train.py target --data "$work" --batch 2048 --out "$work/target" --minutes "${TARGET_MINUTES:-40}"
"$PYTHON" train.py draft --data "$work" --batch 2048 --teacher "$work/target" --out "$work/draft" --minutes "${DRAFT_MINUTES:-8}"
"$PYTHON" export.py "$work/target" "$work" target
"$PYTHON" export.py "$work/draft" "$work" draft
"$PYTHON_OPTIMUM" export_optimum.py "$work/draft" "$work" draft-optimum
"$PYTHON" check_export.py target draft
"$PYTHON" check_optimum.py draft-optimum draft
"$PYTHON" evaluate.py . --samples 4 --out figures.json
