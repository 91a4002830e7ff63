#!/bin/sh
# Everything: sh run.sh [arguments of run.py]
#
# DRAFTMILL_BENCH names the folder for what is made here and never committed
# (default ~/.cache/draftmill/bench): the peers' Python environment, the pair of
# models, the programs. What is there already is used again.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
home=${DRAFTMILL_BENCH:-$HOME/.cache/draftmill/bench}
. "$here/setup.sh"
if [ ! -f "$home/pair/pair.json" ]; then
  "$py" "$here/make_pair.py" "$home/pair"
fi
exec "$py" "$here/run.py" --pair "$home/pair" --bin "$home/bin" --log "$home/bench.jsonl" "$@"
