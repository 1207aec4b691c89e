# Removes the posts of an author from the home page: unfollow.sh USER AUTHOR
set -eu
tideline feed leave social "outbox,author=$2" "$1"
