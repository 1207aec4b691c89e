# Prints the texts of messages with some words: search.sh FEED WORDS
set -eu
tideline feed search im "$2" --feed "$1" --output ndjson | sed -n 's/.*"text":"\([^"]*\)".*/\1/p'
