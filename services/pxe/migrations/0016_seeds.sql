-- +goose Up
-- What came with Ironplane and nobody has changed since: a rescue system and disk images boot the same Debian in memory, which has what they
-- need without a mirror. The first lets its owner in and says that it is up; the others are compared with their SHA-256, and can be of zstd.
-- +goose StatementBegin
DO $do$
DECLARE
	script bigint;
	preseed_of_rescue bigint;
	preseed_of_image bigint;
BEGIN
	IF EXISTS (SELECT FROM preseed WHERE name = 'Rescue system') THEN
		RETURN;
	END IF;
	UPDATE boot_script SET version = version + 1, body = $template$#!ipxe
# {{line .Profile.Name}} on {{.Host.Hostname}}
set base {{.URL.Files}}/local/memory
kernel ${base}/vmlinuz initrd=initrd console=tty0 console=ttyS0 ironplane.preseed={{.URL.Preseed}}
initrd ${base}/initrd
boot
$template$,
		description = 'BIOS and UEFI; the file server has, in the folder local/memory, the system in memory, which runs the preseed'
		WHERE name = 'Rescue system' AND body = $template$#!ipxe
# A rescue system on {{.Host.Hostname}}
set base {{.URL.Files}}/systemrescue/sysresccd/boot/x86_64
kernel ${base}/vmlinuz initrd=sysresccd.img archisobasedir=sysresccd archiso_http_srv={{.URL.Files}}/systemrescue/ {{if .Host.IPv4.Address}}ip={{.Host.IPv4.Address}}::{{.Host.IPv4.Gateway}}:{{netmask .Host.IPv4.Prefix}}:{{.Host.Name}}::none{{else}}ip=dhcp{{end}} checksum
initrd ${base}/sysresccd.img
boot
$template$
		RETURNING id INTO script;
	IF script IS NULL THEN
		RETURN;
	END IF;
	INSERT INTO preseed (name, description, is_installable, body) VALUES ('Rescue system', 'for the system in memory, where root gets in by SSH', false, $template$#!/bin/bash
# {{line .Profile.Name}} on {{.Host.Hostname}}: root gets in by SSH. Once it has been restarted, it boots its disk.
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
say -d 'step=rescue&progress=50' {{quote .URL.Progress}}
say -X POST {{quote .URL.Done}}
$template$)
		RETURNING id INTO preseed_of_rescue;
	UPDATE profile SET version = version + 1, preseed_id = preseed_of_rescue WHERE name = 'Rescue system' AND boot_script_id = script AND preseed_id IS NULL;
	UPDATE preseed SET version = 2, body = $template$#!/bin/bash
# {{line .Profile.Name}}: an image on {{.Host.Hostname}}. The disk has no start until all the rest is on it, and compared. Where that
# fails, it has none, and the machine stays in memory, where root gets in by SSH.
set -o pipefail
image={{quote (line (value "image" .Variables))}} sum={{quote (lower (line (value "sha256" .Variables)))}} disk={{quote (default "/dev/sda" .Host.Disk)}}
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
empty() {
  mdadm --stop --scan > /run/emptied 2>&1 || true
  vgchange -an >> /run/emptied 2>&1 || true
  sgdisk --zap-all "$disk" >> /run/emptied 2>&1 || true
  dd status=none if=/dev/zero bs=1M count=1 conv=fsync of="$disk"
}
write() {
  sha256sum < /run/image > /run/sum &
  curl -fsS --speed-limit 1 --speed-time 60 -- "$image" | $unpack | tee /run/image |
    { dd status=none bs=1M count=1 iflag=fullblock of=/run/start && dd status=none bs=1M seek=1 iflag=fullblock conv=fsync of="$disk"; } && wait $!
}
say -d 'step=image&progress=10' {{quote .URL.Progress}}
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
say -X POST {{quote .URL.Done}}
systemctl reboot
$template$,
		description = 'for the system in memory, which writes the image of the variable image, an http address that ends with .gz or .zst where it is packed, to the disk; sha256 is of what is written'
		WHERE name = 'Disk image' AND version = 1
		RETURNING id INTO preseed_of_image;
	UPDATE profile SET version = 2, boot_script_id = script WHERE name = 'Disk image' AND version = 1 AND preseed_id = preseed_of_image;
END $do$;
-- +goose StatementEnd
