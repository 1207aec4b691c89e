# Posts for all followers, or for one friend only: post.sh AUTHOR TEXT [FRIEND]
set -eu
server=${TIDELINE_SERVER:-http://localhost:8490}
escape() { printf '%s' "$1" | sed 's/\\/\\\\/g; s/"/\\"/g'; }
to=${3:+, \"to\": [\"$(escape "$3")\"]}
curl -fsS -o /dev/null "$server/v1/tables/social/feeds/outbox,author=$1/messages?as=$1" -d "{\"messages\": [
  {\"columns\": {\"text\": \"$(escape "$2")\"}$to}]}"
