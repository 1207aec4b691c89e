# Hides all posts of a sender from a user: block.sh USER SENDER
set -eu
tideline feed block social "$1" "$2"
