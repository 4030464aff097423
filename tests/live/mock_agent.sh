#!/bin/sh
# A mock agent (the mailbox document, section 13): reads its inbox and answers, with nothing but curl and a JSON reader.
# It talks to the agent's own Unix socket, where the mesh's user needs no secret.
# Usage: mock_agent.sh ROOT AGENT   (goes on until ended)
set -eu
root=$1 agent=$2
cd "$root/agents/$agent" # the path of a Unix socket must be short
here="curl --silent --show-error --fail --unix-socket agent.sock -H Content-Type:application/json"

while sleep 0.2; do
  $here "http://localhost/message?unread=true&type=question" |
    python3 -c 'import json, sys; [print(m["id"], m["from"], m["payload"]["text"]) for m in json.load(sys.stdin)]' |
    while read -r id from text; do
      # The answer goes to who asked, and acks the question in our inbox.
      secret=$(cat secret)
      port=$(python3 -c 'import json, sys; print(json.load(open("../registry.json"))["agents"][sys.argv[1]]["port"])' "$from")
      curl --silent --show-error --fail -H Content-Type:application/json -H @- "http://127.0.0.1:$port/message" -d \
        "{\"type\": \"answer\", \"replyTo\": \"$id\", \"payload\": {\"text\": \"$text? Yes.\"}}" > /dev/null <<HEADER
Authorization: Bearer $secret
HEADER
    done
done
