# Appends what is new in an inbox to the file of a device: sync.sh USER DEVICE
set -eu
device=$1-$2
touch "$device.ndjson"
cursor=$(cat "$device.cursor" 2> /dev/null || echo 0)
more=true
while [ "$more" = true ]; do
  # The last line has the cursor after the page.
  page=$(tideline feed inbox im "$1" --after "$cursor" --limit 100 --output ndjson)
  end=$(printf '%s\n' "$page" | tail -n 1)
  cursor=$(printf '%s\n' "$end" | sed 's/.*"next":"\([0-9]*\)".*/\1/')
  more=$(printf '%s\n' "$end" | sed 's/.*"more":\([a-z]*\).*/\1/')
  # The messages are stored before the cursor. After a failure in between, the page comes again.
  printf '%s\n' "$page" | sed '$d' >> "$device.ndjson"
  echo "$cursor" > "$device.cursor"
done
