#!/bin/sh
# Table 1 of Chen et al. 2023 on HumanEval, with a pair of your own:
#
#   sh bench/humaneval.sh quality humaneval.parquet TARGET DRAFT   # pass@1 of every mode, many sequences at a time
#   sh bench/humaneval.sh speed   humaneval.parquet TARGET DRAFT   # time per token, one sequence at a time
#   sh bench/humaneval.sh figure  humaneval.parquet TARGET DRAFT   # Figure 1: K = 0 to 8
#
# Quality and speed are two runs, because many sequences together are the fast
# way to many completions, and one sequence at a time is what the paper times.
# What is compared in speed takes turns on one queue, four problems at a time.
# Interrupted, the same command does what is missing. Results are jobs below
# out/; CHAT=1 puts every problem through the target's chat template (their names
# end in -chat). N samples a problem where tokens are drawn (default 5), LANES
# sequences together (default 8), LIMIT problems for speed and figure (default 40).
set -eu
[ $# -eq 4 ] || { sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 2; }
cd "$(dirname "$0")/.."
what=$1 data=$2 target=$3 draft=$4
suffix=${CHAT:+-chat}
# A chat answer is a text around a fenced program: no stop sequence ends it.
config=configs/humaneval.yaml
[ -z "${CHAT:-}" ] || config=configs/humaneval-chat.yaml

job() { # job NAME FLAGS...
	name=$1$suffix
	shift
	echo "== $name"
	bin/submit --config $config --dataset "$data" --target "$target" --draft "$draft" --job "$name" "$@"
}
sweep() { # sweep NAME FLAGS...
	name=$1$suffix
	shift
	echo "== $name"
	bin/submit sweep --config $config --dataset "$data" --target "$target" --draft "$draft" --job "$name" \
		--limit "${LIMIT:-40}" --lanes 1 "$@"
}
greedy="--temperature 0 --top-p 1"

case $what in
quality)
	lanes="--lanes ${LANES:-8}" n="--n ${N:-5}"
	job he-greedy $greedy $lanes --mode both
	job he-greedy-auto $greedy $lanes --mode sps --lookahead auto
	job he-nucleus $n $lanes --mode both
	job he-nucleus-auto $n $lanes --mode sps --lookahead auto
	for j in he-greedy he-greedy-auto he-nucleus he-nucleus-auto; do bin/submit score $j$suffix; done
	bin/submit report he-greedy$suffix he-greedy-auto$suffix
	bin/submit report he-nucleus$suffix he-nucleus-auto$suffix
	;;
speed)
	sweep he-greedy-1 --k 0,4,auto $greedy
	sweep he-nucleus-1 --k 0,4,auto
	for j in he-greedy-1 he-nucleus-1; do bin/submit report $j$suffix-k0 $j$suffix-k4 $j$suffix-kauto; done
	;;
figure)
	sweep he-figure --k 0..8,auto --html out/he-figure$suffix.html --plots out/he-figure$suffix-plots
	;;
*) echo "humaneval.sh: quality, speed or figure, not $what" >&2; exit 2 ;;
esac
