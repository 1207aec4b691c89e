# Recalls a message by its id: recall.sh USER FEED ID
set -eu
number=$(tideline feed read im "$2" --no-events --output ndjson | sed -n "s/.*\"sequence\":\"\([0-9]*\)\".*\"id\":\"$3\".*/\1/p")
tideline feed recall im "$2" "$number" --as "$1" > /dev/null
