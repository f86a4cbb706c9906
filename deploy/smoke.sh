#!/usr/bin/env bash
# Prove that a running installation works, with one real job: deploy/smoke.sh http://127.0.0.1:8000
# LONGFOLD_KEY holds an API key if the installation asks for one. Needs curl and python3.
set -euo pipefail

url=${1:?usage: deploy/smoke.sh URL}
url=${url%/}
wait_s=${SMOKE_WAIT_S:-900}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

die() { echo "smoke: $*" >&2; exit 1; }
call() { curl --silent --show-error --fail-with-body ${LONGFOLD_KEY:+--header "Authorization: Bearer $LONGFOLD_KEY"} "$@"; }
field() { python3 -c 'import json, sys; value = json.load(sys.stdin)
for name in sys.argv[1].split("."): value = value[name]
print(value)' "$1"; }
until_ok() { # what, seconds, command
  local what=$1 end=$((SECONDS + $2)); shift 2
  until "$@" >"$work/out" 2>&1; do
    [ "$SECONDS" -lt "$end" ] || die "$what: $(tail -c 300 "$work/out")"
    sleep 2
  done
}

until_ok "$url does not answer" 60 curl --silent --fail "$url/healthz"
echo "alive"
until_ok "not ready" "$wait_s" curl --silent --fail-with-body "$url/readyz"
echo "ready: a replica has generated"

python3 - "$work/document.txt" <<'PY'
import random, sys
rng = random.Random(5)
words = "the harbour record of the winter season lists ships cargo weather crew repairs and letters".split()
lines = [" ".join(rng.choice(words) for _ in range(14)).capitalize() + "." for _ in range(400)]
lines[260] = "The lighthouse keeper of Brannock Point was Ottilie Vask."
open(sys.argv[1], "w", encoding="utf-8").write("\n".join(lines) + "\n")
PY
file_id=$(call --form purpose=user_data --form "file=@$work/document.txt" "$url/v1/files" | field id)
echo "uploaded $file_id"
job=$(call --header 'Content-Type: application/json' "$url/v1/jobs" --data \
  "{\"strategy\": \"mapreduce\", \"file_ids\": [\"$file_id\"], \"question\": \"Who was the lighthouse keeper of Brannock Point?\"}" | field id)
echo "submitted $job"

end=$((SECONDS + wait_s))
while state=$(call "$url/v1/jobs/$job" | field state); [ "$state" = queued ] || [ "$state" = running ]; do
  [ "$SECONDS" -lt "$end" ] || die "the job is still $state after $wait_s s"
  sleep 2
done
[ "$state" = completed ] || die "the job $state: $(call "$url/v1/jobs/$job")"
call "$url/v1/jobs/$job/result" >"$work/result.json"
python3 - "$work/result.json" <<'PY'
import json, sys
result = json.load(open(sys.argv[1], encoding="utf-8"))
print(f"answer: {result['answer']!r}, confidence {result['confidence']}, coverage {result['coverage']['chunks_read']}/{result['coverage']['chunks']}")
if result["coverage"]["chunks_read"] != result["coverage"]["chunks"]:
    sys.exit("smoke: some chunks were not read")
if "Vask" not in result["answer"]:
    sys.exit("smoke: the answer is not the one the document states")
PY
echo "it works"
