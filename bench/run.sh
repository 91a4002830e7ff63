#!/bin/sh
# Everything: sh run.sh [arguments of run.py]
#
# DRAFTMILL_BENCH names the folder for what is made here and never committed
# (default ~/.cache/draftmill/bench): the peers' Python environment, the pair of
# models, the programs. What is there already is used again.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
home=${DRAFTMILL_BENCH:-$HOME/.cache/draftmill/bench}
py=$home/venv/bin/python
mkdir -p "$home/bin"

if [ ! -x "$py" ]; then
  python3 -m venv "$home/venv"
fi
if [ ! -f "$home/venv/complete" ]; then
  "$home/venv/bin/pip" install -r "$here/requirements.txt" # builds llama.cpp for this machine
  touch "$home/venv/complete"
fi
if [ ! -f "$home/pair/pair.json" ]; then
  "$py" "$here/make_pair.py" "$home/pair"
fi
cc -O3 -march=native -pthread "$here/bandwidth.c" -o "$home/bin/bandwidth"
(cd "$here" && go build -o "$home/bin/ours" ./ours)
exec "$py" "$here/run.py" --pair "$home/pair" --bin "$home/bin" --log "$home/bench.jsonl" "$@"
