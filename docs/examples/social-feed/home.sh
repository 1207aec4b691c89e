# Prints the home page of a user, newest first: home.sh USER
set -eu
tideline feed inbox social "$1" --descending --output ndjson |
  sed -n 's/.*"sender":"\([^"]*\)".*"text":"\([^"]*\)".*/\1: \2/p'
