#!/bin/bash
# Brings the system in memory into the store of Ironplane: API=https://ironplane.example.com KEY=ip_… ironplane-rescue-import [FILE]
# It becomes the ISO "rescue", or its next version, and file servers have it below rescue/ after their next sync.
set -euo pipefail
file=${1:-/usr/share/ironplane-rescue/rescue.iso}
: "${API:?must be the address of the API}" "${KEY:?must be an API key that may write pxe.settings}"
piece=$((64 << 20))

# call sends a request and prints the response. The key is not on the command line, where others could read it.
call() { curl -sS --fail-with-body --retry 5 --config <(printf 'header = "Authorization: Bearer %s"\n' "$KEY") "$@"; }
member() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }

size=$(stat -Lc %s "$file")
sum=$(sha256sum "$file" | cut -d ' ' -f 1)
id=$(call "$API/pxe/iso?name=rescue" | grep -o '"id":[0-9]*' | head -n 1 | cut -d : -f 2 || true)
upload=$(call -D - -o /dev/null -X POST -H 'Tus-Resumable: 1.0.0' -H "Upload-Length: $size" "$API/pxe/driver-upload" |
  tr -d '\r' | sed -n 's/^location: //ip')
[ -n "$upload" ] || { echo 'The API has not taken the upload.' >&2; exit 1; }
for ((from = 0; from < size; from += piece)); do
  dd status=none if="$file" bs=1M skip=$((from >> 20)) count=$((piece >> 20)) |
    call -o /dev/null -X PATCH -H 'Tus-Resumable: 1.0.0' -H "Upload-Offset: $from" -H 'Content-Type: application/offset+octet-stream' \
      --data-binary @- "$API$upload"
done
body="\"upload\": \"$upload\", \"sha256\": \"$sum\""
if [ -n "$id" ]; then
  call -o /dev/null -X PATCH --json "{$body}" "$API/pxe/iso/$id"
else
  id=$(call --json "{\"name\": \"rescue\", \"folder\": \"rescue\", $body}" "$API/pxe/iso" | grep -o '"id":[0-9]*' | head -n 1 | cut -d : -f 2)
fi
while :; do
  iso=$(call "$API/pxe/iso/$id")
  case $(member status <<< "$iso") in
  ready) break ;;
  failed) echo "The import failed: $(member error <<< "$iso")" >&2; exit 1 ;;
  esac
  sleep 1
done
echo "The ISO $id has the system in memory. Sync the file servers: POST /pxe/file/{id}/child/sync for each that has no parent."
