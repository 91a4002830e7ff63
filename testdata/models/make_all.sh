#!/bin/sh
# Makes all models of this folder and their golden logits again: sh make_all.sh WORK_DIR
#
# WORK_DIR gets the checkpoints and, unless PYTHON and PYTHON_OPTIMUM name ones that
# exist already, the two Python environments. Optimum needs an older transformers than
# the model builder.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=${1:?usage: sh make_all.sh WORK_DIR}
mkdir -p "$work"
work=$(cd "$work" && pwd)
cd "$here"

if [ -z "${PYTHON:-}" ]; then
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install -q -r requirements-builder.txt
  PYTHON="$work/venv/bin/python"
fi
if [ -z "${PYTHON_OPTIMUM:-}" ]; then
  python3 -m venv "$work/venv-optimum"
  "$work/venv-optimum/bin/pip" install -q -r requirements-optimum.txt
  PYTHON_OPTIMUM="$work/venv-optimum/bin/python"
fi
checkpoints=$work/checkpoints
rm -rf "$checkpoints"

builder() { model=$1 out=$2; shift 2; "$PYTHON" export_builder.py "$checkpoints/$model" "$out" "$@"; }
optimum() { model=$1 out=$2; shift 2; "$PYTHON_OPTIMUM" export_optimum.py "$checkpoints/$model" "$out" "$@"; }

"$PYTHON_OPTIMUM" checkpoints.py "$checkpoints"
"$PYTHON" golden.py "$checkpoints" golden

for model in llama qwen2 qwen3 phi3; do
  builder $model $model-builder fp32
done
builder gemma2 gemma2-builder fp32 cpu windowed_kv_cache=false
for model in gpt2 llama qwen2 qwen3 phi3; do
  optimum $model $model-optimum
done
optimum gemma2 gemma2-optimum --eager

# Other numbers than float32.
optimum gpt2 gpt2-optimum-int8 --int8
optimum llama llama-optimum-int8 --int8
builder llama llama-builder-int4 int4
"$PYTHON" export_builder.py --inline llama-builder-int4
builder llama llama-builder-int8 int8
builder llama llama-builder-fp16-cuda fp16 cuda
builder qwen2 qwen2-builder-int4 int4 cpu int4_accuracy_level=4
builder qwen2 qwen2-builder-int4-cuda int4 cuda   # half precision around 4-bit weights
builder qwen2 qwen2-builder-fp16-dml fp16 dml     # position_ids beside GroupQueryAttention
builder qwen3 qwen3-builder-webgpu fp32 webgpu    # queries and keys normalized inside it

"$PYTHON_OPTIMUM" crossed.py "$work/crossed"

# Refused by their graphs, of which the weights are no part.
builder gemma2 refused/window fp32
builder llama refused/pruned fp32 cpu prune_lm_head=true
builder llama refused/headless fp32 cpu exclude_lm_head=true
builder llama refused/paged fp16 cuda use_paged_attention=true
optimum llama refused/no-past --no-past
for folder in refused/*; do
  "$PYTHON" strip_weights.py $folder
done
# Refused by the self-test, which needs them.
builder llama refused/no-verification fp16 cpu
du -sk .
