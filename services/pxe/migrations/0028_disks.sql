-- +goose Up
CREATE TABLE install_report (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	install_id bigint NOT NULL REFERENCES install (id) ON DELETE CASCADE,
	statement  text NOT NULL, -- as its agent signed it
	signature  text NOT NULL
);
CREATE INDEX install_report_by_install ON install_report (install_id);

-- The disk image takes its disks by selectors, leaves alone those to keep, reads qcow2, and writes data for cloud-init. The profile "Wipe"
-- makes disks read as zeros. Seeds that somebody has changed stay as they are.
-- +goose StatementBegin
UPDATE preseed SET version = version + 1, body = $template$#!/bin/bash
# {{line .Profile.Name}}: an image on {{.Host.Hostname}}. The disk has no start until all the rest is on it, and compared. Where that
# fails, it has none, and the machine stays in memory, where root gets in by SSH.
set -o pipefail
image={{quote (line (value "image" .Variables))}} sum={{quote (lower (line (value "sha256" .Variables)))}}
disks={{quote (default (default "/dev/sda" .Host.Disk) (line (value "disks" .Variables)))}} keep={{quote (default "" (line (value "keep" .Variables)))}}
nocloud={{quote (default "no" (lower (line (value "nocloud" .Variables))))}}
failed() {
  trap - ERR
  say --data-urlencode "error=$1" {{quote .URL.Failed}}
  exit 1
}
say() { curl -fsS --retry 60 --retry-delay 5 --retry-all-errors -o /dev/null "$@"; }
trap 'failed "Failed has: $BASH_COMMAND"' ERR

hostname {{quote .Host.Name}}
chpasswd -e <<'END'
root:{{crypt .Password}}
END
mkdir -p -m 700 /root/.ssh
{{range .SSHKeys}}echo {{quote (line .)}} >> /root/.ssh/authorized_keys
{{end}}systemctl start ssh

case $image in
*.gz) unpack="gzip -dc" ;;
*.zst) unpack="zstd -dcq" ;;
*) unpack=cat ;;
esac
# A qcow2 file cannot be read from front to end, so it comes into memory first. Its sum is that of the file.
packed=/var/tmp/image.qcow2
start=$({ curl -fsS --retry 5 --retry-delay 10 --retry-all-errors -r 0-3 -- "$image" 2> /run/why || true; } | head -c 4 | od -An -tx1 | tr -d ' \n')
if [ "$start" = 514649fb ]; then
  say -d 'step=download&progress=5' {{quote .URL.Progress}}
  curl -fsS --retry 5 --retry-delay 10 --retry-all-errors --speed-limit 1 --speed-time 60 -o "$packed" -- "$image" 2> /run/why ||
    failed "The image was not downloaded: $(tr '\n' ' ' < /run/why)"
  read -r is rest <<< "$(sha256sum "$packed")"
  [ "${sum:-$is}" = "$is" ] || failed "The SHA-256 of the image is $is, and not $sum."
  sum=
fi
read_image() {
  if [ -e "$packed" ]; then
    ironplane-disks raw "$packed"
  else
    curl -fsS --speed-limit 1 --speed-time 60 -- "$image" | $unpack
  fi
}
empty() {
  sgdisk --zap-all "$disk" > /run/emptied 2>&1 || true
  dd status=none if=/dev/zero bs=1M count=1 conv=fsync of="$disk"
}
write() {
  sha256sum < /run/image > /run/sum &
  read_image | tee /run/image |
    { dd status=none bs=1M count=1 iflag=fullblock of=/run/start && dd status=none bs=1M seek=1 iflag=fullblock conv=fsync of="$disk"; } && wait $!
}
say -d 'step=image&progress=10' {{quote .URL.Progress}}
disk=$(ironplane-disks choose -keep "$keep" "$disks" 2> /run/why) || failed "No disk is written: $(tr '\n' ' ' < /run/why)"
[ -b "$disk" ] || failed "There is no disk $disk."
mkfifo /run/image
empty
tries=5
until write 2> /run/why; do
  wait
  if [ $((tries -= 1)) = 0 ]; then
    empty
    failed "The image was not written: $(tr '\n' ' ' < /run/why)"
  fi
  sleep 10
done
read -r is rest < /run/sum
if [ "${sum:-$is}" != "$is" ]; then
  empty
  failed "The SHA-256 of what was written is $is, and not $sum."
fi
say -d 'step=start&progress=90' {{quote .URL.Progress}}
dd status=none bs=1M conv=fsync if=/run/start of="$disk"
# The data for the first boot are on a small partition at the end of the disk, where cloud-init looks for it by its label.
seed() {
  sgdisk --move-second-header "$disk" && sgdisk --new=0:-16M:0 --typecode=0:0700 --change-name=0:cidata "$disk" &&
    sector=$(blockdev --getss "$disk") && first=$(sgdisk --print "$disk" | awk '$NF == "cidata" { print $2 }') &&
    mkfs.vfat -n CIDATA -S "$sector" -C /run/cidata 8192 && mcopy -i /run/cidata /run/seed/* :: &&
    dd status=none if=/run/cidata of="$disk" bs="$sector" seek="$first" conv=fsync
}
if [ "$nocloud" = yes ]; then
  say -d 'step=first-boot&progress=95' {{quote .URL.Progress}}
  mkdir /run/seed
  printf 'instance-id: ironplane-%s\nlocal-hostname: %s\n' "$(date +%s)" {{quote .Host.Name}} > /run/seed/meta-data
  cat > /run/seed/user-data <<'END'
#cloud-config
hostname: {{json .Host.Name}}
fqdn: {{json .Host.Hostname}}
disable_root: false
ssh_pwauth: true
chpasswd:
  expire: false
  users:
    - name: root
      type: hash
      password: {{json (crypt .Password)}}
users:
  - name: root
    lock_passwd: false
    ssh_authorized_keys:{{if not .SSHKeys}} []{{end}}
{{range .SSHKeys}}      - {{json .}}
{{end}}END
  cat > /run/seed/network-config <<'END'
version: 2
ethernets:
  primary:
    match:
      macaddress: {{json .Host.MAC}}
{{if .Host.IP}}    dhcp4: false
    addresses:
{{if .Host.IPv4.Address}}      - "{{.Host.IPv4.Address}}/{{.Host.IPv4.Length}}"
{{end}}{{if .Host.IPv6.Address}}      - "{{.Host.IPv6.Address}}/{{.Host.IPv6.Length}}"
{{end}}    routes:{{if not .Host.IPv4.Gateway}}{{if not .Host.IPv6.Gateway}} []{{end}}{{end}}
{{if .Host.IPv4.Gateway}}      - to: 0.0.0.0/0
        via: {{json .Host.IPv4.Gateway}}
{{end}}{{if .Host.IPv6.Gateway}}      - to: "::/0"
        via: {{json .Host.IPv6.Gateway}}
{{end}}{{else}}    dhcp4: true
{{end}}    nameservers:
      addresses: [{{range $i, $n := .Host.Nameservers}}{{if $i}}, {{end}}{{json $n}}{{end}}]
END
  if ! seed > /run/why 2>&1; then
    empty
    failed "The data for the first boot were not written: $(tr '\n' ' ' < /run/why)"
  fi
fi
say -X POST {{quote .URL.Done}}
systemctl reboot
$template$,
	description = 'for the system in memory, which writes the image of the variable image, an http address, to the disk; it may be raw, packed as .gz or .zst, or qcow2; sha256 is of what is written, or of the qcow2 file; disks and keep select disks; nocloud: yes writes data for cloud-init'
	WHERE name = 'Disk image' AND version = 2;
-- +goose StatementEnd

-- +goose StatementBegin
DO $do$
DECLARE
	script bigint;
	wipe bigint;
BEGIN
	IF EXISTS (SELECT FROM preseed WHERE name = 'Wipe') OR EXISTS (SELECT FROM profile WHERE name = 'Wipe')
		OR EXISTS (SELECT FROM boot_script WHERE name = 'Wipe') THEN
		RETURN;
	END IF;
	INSERT INTO boot_script (name, description, body)
		SELECT 'Wipe', 'experimental, because no test has wiped a machine with it; ' || description, body FROM boot_script WHERE name = 'Rescue system'
		RETURNING id INTO script;
	IF script IS NULL THEN
		RETURN;
	END IF;
	INSERT INTO preseed (name, description, is_installable, body) VALUES ('Wipe', 'experimental, because no test has wiped a machine with it; for the system in memory, which makes disks read as zeros and reports each; disks selects disks, or all without it; keep selects disks that stay untouched', false, $template$#!/bin/bash
# {{line .Profile.Name}}: the disks of {{.Host.Hostname}} read as zeros after that. Each leaves a report.
set -o pipefail
disks={{quote (default "" (line (value "disks" .Variables)))}} keep={{quote (default "" (line (value "keep" .Variables)))}}
failed() {
  trap - ERR
  say --data-urlencode "error=$1" {{quote .URL.Failed}}
  exit 1
}
say() { curl -fsS --retry 60 --retry-delay 5 --retry-all-errors -o /dev/null "$@"; }
trap 'failed "Failed has: $BASH_COMMAND"' ERR

say -d 'step=wipe&progress=10' {{quote .URL.Progress}}
ironplane-disks wipe -keep "$keep" "$disks" > /run/reports 2> /run/why || failed "The disks were not wiped: $(tr '\n' ' ' < /run/why)"
while read -r report; do
  say --data-urlencode "report=$report" {{quote .URL.Report}}
done < /run/reports
say -X POST {{quote .URL.Done}}
systemctl poweroff
$template$)
		RETURNING id INTO wipe;
	INSERT INTO profile (name, access_client, experimental, boot_script_id, preseed_id) VALUES ('Wipe', false, true, script, wipe);
END $do$;
-- +goose StatementEnd
