# Lists the conversations of a user, with unread messages and mentions: unread.sh USER
set -eu
tideline feed conversations im "$1" --json | tr '{' '\n' |
  sed -n 's/.*"name":"\([^"]*\)".*/\1/p; s/.*"of":"\([^"]*\)".*/\1/p; s/.*"unread":\([0-9]*\),"mentions":\([0-9]*\).*/  \1 unread, \2 mentions/p'
