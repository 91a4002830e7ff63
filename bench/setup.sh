# Sourced by run.sh and real.sh: the peers' Python environment and the programs,
# in the folder $home. Sets py.
py=$home/venv/bin/python
mkdir -p "$home/bin"

if [ ! -x "$py" ]; then
  python3 -m venv "$home/venv"
fi
if [ ! -f "$home/venv/complete" ]; then
  # llama.cpp is built for this machine. Its AMX code dies of an illegal instruction
  # where a guest has the flag but not the tiles: such a machine gets AVX-512.
  if grep -qs amx_int8 /proc/cpuinfo; then
    CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AMX_TILE=OFF -DGGML_AMX_INT8=OFF -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON -DGGML_AVX_VNNI=ON"
    export CMAKE_ARGS
  fi
  "$home/venv/bin/pip" install -r "$here/requirements.txt"
  touch "$home/venv/complete"
fi
cc -O3 -march=native -pthread "$here/bandwidth.c" -o "$home/bin/bandwidth"
(cd "$here" && go build -o "$home/bin/ours" ./ours)
