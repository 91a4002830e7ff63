#!/bin/sh
# Makes the translation pair and its dataset: sh make_all.sh WORK_DIR
#
# WORK_DIR gets the two Python environments, the training text and the trained
# checkpoints. Everything else is written here. PYTHON and PYTHON_OPTIMUM name
# environments that exist already; TARGET_STEPS and DRAFT_STEPS set the length of
# the training.
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

# Large tensors are reused instead of being mapped anew, and waiting threads sleep: faster on a busy machine.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=8000000000 MALLOC_TOP_PAD_=268435456 OMP_WAIT_POLICY=PASSIVE

"$PYTHON" sentences.py train "$work/train.jsonl" --count 60000 --seed 1
"$PYTHON_OPTIMUM" sentences.py test sentences.parquet --count 80 --seed 2
"$PYTHON" make_tokenizer.py "$work/train.jsonl" "$work"
"$PYTHON" train.py target --data "$work" --out "$work/target" --steps "${TARGET_STEPS:-1200}"
"$PYTHON" train.py draft --data "$work" --teacher "$work/target" --out "$work/draft" --steps "${DRAFT_STEPS:-1200}"
"$PYTHON_OPTIMUM" export.py "$work/target" "$work" target sentences.parquet
"$PYTHON_OPTIMUM" export.py "$work/draft" "$work" draft sentences.parquet
