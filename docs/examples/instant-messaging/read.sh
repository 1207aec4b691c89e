# Marks a conversation as read on all devices: read.sh USER FEED
set -eu
newest=$(tideline feed show im "$2" --json | sed 's/.*"newest":"\([0-9]*\)".*/\1/')
tideline feed cursor im "$1" "$2" "$newest" > /dev/null
