# Creates the table, its search index, a room and a pair.
set -eu
server=${TIDELINE_SERVER:-http://localhost:8490}
curl -fsS -o /dev/null "$server/v1/tables" -d '{"name": "im", "model": "feed", "feed": {"inboxes": {"push_max": 1000},
  "columns": [{"name": "text", "type": "string"}], "parts": {"every": "month", "hot": "90d"}}}'
curl -fsS -o /dev/null "$server/v1/tables/im/search-indexes?refresh=wait" -d '{"name": "texts", "columns": [
  {"column": "feed", "as": "keyword"}, {"column": "event", "as": "keyword"}, {"column": "text", "as": "text"}]}'
tideline feed put im room,name=crew title=Crew > /dev/null
for user in ann bea cem; do
  tideline feed join im room,name=crew "$user"
done
tideline feed put im pair,of=ann-bea > /dev/null
for user in ann bea; do
  tideline feed join im pair,of=ann-bea "$user"
done
