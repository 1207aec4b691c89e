# Sends a message: send.sh USER FEED ID TEXT [MENTION]
set -eu
server=${TIDELINE_SERVER:-http://localhost:8490}
escape() { printf '%s' "$1" | sed 's/\\/\\\\/g; s/"/\\"/g'; }
mentions=${5:+, \"mentions\": [\"$(escape "$5")\"]}
curl -fsS -o /dev/null "$server/v1/tables/im/feeds/$2/messages?as=$1" -d "{\"messages\": [
  {\"id\": \"$(escape "$3")\", \"columns\": {\"text\": \"$(escape "$4")\"}$mentions}]}"
