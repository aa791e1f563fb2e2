#!/usr/bin/env bash
# Runs make targets in turn, each with a deadline, and prints a table: target, seconds, result, and the target's last log line,
# which has its measurement. Arguments: TARGET:MINUTES. Logs stay in bin/night. The script fails if a target fails.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin/night

rows=() failed=0
for entry in "$@"; do
	target=${entry%%:*} minutes=${entry##*:}
	log=bin/night/$target.log
	began=$SECONDS
	echo "make $target, at most $minutes minutes"
	if timeout --kill-after=60 "${minutes}m" make --no-print-directory "$target" FULL=1 >"$log" 2>&1 </dev/null; then
		result=passed
	elif [ $? = 124 ]; then
		result="timed out" failed=1
	else
		result=failed failed=1
	fi
	measured=$(grep -oE '^ +[a-z_0-9]+_test\.go:[0-9]+: .*' "$log" | tail -n 1 | sed 's/^[^:]*:[0-9]*: //' | cut -c1-100)
	rows+=("$target"$'\t'"$((SECONDS - began))"$'\t'"$result"$'\t'"$measured")
done
{
	printf 'target\tseconds\tresult\tmeasured\n'
	printf '%s\n' "${rows[@]}"
} | column -t -s $'\t'
exit $failed
