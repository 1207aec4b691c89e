# Creates the table: setup.sh [PUSH_MAX]
set -eu
server=${TIDELINE_SERVER:-http://localhost:8490}
curl -fsS -o /dev/null "$server/v1/tables" -d '{"name": "social", "model": "feed",
  "feed": {"inboxes": {"push_max": '"${1:-500}"'}, "columns": [{"name": "text", "type": "string"}]}}'
