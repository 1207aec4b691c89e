# Prints the posts of an author that a visitor may see, newest first: profile.sh AUTHOR VISITOR
set -eu
tideline feed read social "outbox,author=$1" --as "$2" --descending --no-events --output ndjson |
  sed -n 's/.*"text":"\([^"]*\)".*/\1/p'
