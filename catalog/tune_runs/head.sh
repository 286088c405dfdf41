#!/usr/bin/env bash
# Runs that settle the choice of drafting method and draft length: @RUNS@.
# Then: @AGAIN@
set -euo pipefail
: "${PROMPTS:?set it to a file of your own prompts (@FORM@)}"
RESULTS="${RESULTS:-results}"
URL=http://127.0.0.1:@PORT@
mkdir -p "$RESULTS"

server=
trap '[ -z "$server" ] || kill "$server"' EXIT

wait_for_server() {
  until curl -sf "$URL/health" > /dev/null; do
    kill -0 "$server" || { echo "the server ended; see $RESULTS/$1.log" >&2; exit 1; }
    sleep 2
  done
}

run() {  # SETTING METHOD K SERVER...
  local name=$1 method=$2 k=$3 clients
  shift 3
  for clients in @LOADS@; do [ -e "$RESULTS/$name-c$clients.@SUFFIX@" ] || break; done
  if [ -e "$RESULTS/$name-c$clients.@SUFFIX@" ]; then echo "$name is measured"; return; fi
  echo "$name: $*"
  "$@" > "$RESULTS/$name.log" 2>&1 &
  server=$!
  wait_for_server "$name"
  for clients in @LOADS@; do
    [ -e "$RESULTS/$name-c$clients.@SUFFIX@" ] || bench "$name" "$method" "$k" "$clients"
  done
  kill "$server"; wait "$server" || true
  server=
}
