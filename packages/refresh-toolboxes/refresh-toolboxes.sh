# shellcheck shell=bash
# refresh-toolboxes [LOCK] [NAME...]: writes today's digests of the images' tags, all of them or those named.
# Decides nothing but that: an entry without a tag stays as it is, and so does one whose tag cannot be read.

lock=${1:-driver/nixwulf/data/toolboxes.lock.json}
shift $(($# > 0 ? 1 : 0))

fail() {
  echo "refresh-toolboxes: $1" >&2
}

if [[ ! -f $lock ]]; then
  fail "'$lock' is not a file; run this where it is, or give its path: 'refresh-toolboxes LOCK'."
  exit 2
fi

if (($# > 0)); then
  names=("$@")
else
  mapfile -t names < <(jq -r '.images | to_entries[] | select(.value.tag) | .key' "$lock")
fi

new=$(mktemp)
trap 'rm -f "$new" "$new.next"' EXIT
cat "$lock" >"$new"

failed=0
for name in "${names[@]}"; do
  reference=$(jq -r --arg name "$name" '.images[$name] | select(.tag) | "\(.image):\(.tag)"' "$lock")
  if [[ -z $reference ]]; then
    fail "'$name' has no tag in '$lock'; add one, or leave the name out."
    failed=1
    continue
  fi
  # The images are for x86_64 and this may run on a Mac.
  if ! digest=$(skopeo inspect --no-tags --override-os linux --override-arch amd64 \
    --format '{{.Digest}}' "docker://$reference"); then
    fail "'$reference' could not be read, so '$name' stays as it is; see its registry for the tags that are left."
    failed=1
    continue
  fi
  before=$(jq -r --arg name "$name" '.images[$name].digest' "$lock")
  if [[ $digest != "$before" ]]; then
    echo "$name: $before -> $digest"
    # A note is about the digest that it was written for.
    jq --arg name "$name" --arg digest "$digest" \
      '.images[$name] |= (.digest = $digest | del(.note))' "$new" >"$new.next"
    cat "$new.next" >"$new"
  fi
done

cat "$new" >"$lock"
exit "$failed"
