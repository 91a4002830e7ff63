# Sourced: lets the loader find the CUDA 13 and cuDNN 9 libraries that Python's packages
# of NVIDIA have brought, where the system has none.
if ! ldconfig -p 2>/dev/null | grep -q 'libcudnn\.so\.9'; then
	for dir in $("${PYTHON:-python3}" -c '
import glob, site, sys
for base in {*site.getsitepackages(), site.getusersitepackages()}:
    print(*glob.glob(base + "/nvidia/*/lib"))
' 2>/dev/null || true); do
		LD_LIBRARY_PATH=$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	done
	export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
fi
