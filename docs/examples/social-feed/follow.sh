# Follows an author; earlier posts appear on the home page: follow.sh USER AUTHOR
set -eu
tideline feed join social "outbox,author=$2" "$1" --history all
