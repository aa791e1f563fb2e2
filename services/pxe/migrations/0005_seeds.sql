-- +goose Up
-- What comes with Ironplane. An operator edits or deletes it like his own.
-- +goose StatementBegin
INSERT INTO boot_script (name, description, body) VALUES
('Debian 12 installer', 'BIOS and UEFI; kernel and initrd come from Debian''s mirror, or from that of the variable mirror', $template$#!ipxe
# {{line .Profile.Name}} on {{.Host.Hostname}}
set base http://{{default "deb.debian.org" (line (value "mirror" .Variables))}}/debian/dists/bookworm/main/installer-amd64/current/images/netboot/debian-installer/amd64
kernel ${base}/linux initrd=initrd.gz auto=true priority=critical BOOTIF=01-${netX/mac:hexhyp} preseed/url={{.URL.Preseed}} hostname={{.Host.Name}} domain={{.Host.Domain}}{{if .Host.IPv4.Address}} netcfg/disable_autoconfig=true netcfg/get_ipaddress={{.Host.IPv4.Address}} netcfg/get_netmask={{netmask .Host.IPv4.Prefix}} netcfg/get_gateway={{.Host.IPv4.Gateway}} netcfg/get_nameservers="{{join " " .Host.Nameservers}}" netcfg/confirm_static=true{{else if .Host.IPv6.Address}} netcfg/disable_autoconfig=true netcfg/get_ipaddress={{.Host.IPv6.Address}} netcfg/get_netmask={{netmask .Host.IPv6.Prefix}} netcfg/get_gateway={{.Host.IPv6.Gateway}} netcfg/get_nameservers="{{join " " .Host.Nameservers}}" netcfg/confirm_static=true{{end}} --- quiet
initrd ${base}/initrd.gz
boot
$template$),
('Debian 13 installer', 'BIOS and UEFI; kernel and initrd come from Debian''s mirror, or from that of the variable mirror', $template$#!ipxe
# {{line .Profile.Name}} on {{.Host.Hostname}}
set base http://{{default "deb.debian.org" (line (value "mirror" .Variables))}}/debian/dists/trixie/main/installer-amd64/current/images/netboot/debian-installer/amd64
kernel ${base}/linux initrd=initrd.gz auto=true priority=critical BOOTIF=01-${netX/mac:hexhyp} preseed/url={{.URL.Preseed}} hostname={{.Host.Name}} domain={{.Host.Domain}}{{if .Host.IPv4.Address}} netcfg/disable_autoconfig=true netcfg/get_ipaddress={{.Host.IPv4.Address}} netcfg/get_netmask={{netmask .Host.IPv4.Prefix}} netcfg/get_gateway={{.Host.IPv4.Gateway}} netcfg/get_nameservers="{{join " " .Host.Nameservers}}" netcfg/confirm_static=true{{else if .Host.IPv6.Address}} netcfg/disable_autoconfig=true netcfg/get_ipaddress={{.Host.IPv6.Address}} netcfg/get_netmask={{netmask .Host.IPv6.Prefix}} netcfg/get_gateway={{.Host.IPv6.Gateway}} netcfg/get_nameservers="{{join " " .Host.Nameservers}}" netcfg/confirm_static=true{{end}} --- quiet
initrd ${base}/initrd.gz
boot
$template$),
('Ubuntu 24.04 installer', 'BIOS and UEFI; the file server has, in the folder ubuntu-24.04, what is in the live server''s ISO, and the ISO itself as ubuntu.iso', $template$#!ipxe
# {{line .Profile.Name}} on {{.Host.Hostname}}
set base {{.URL.Files}}/ubuntu-24.04
kernel ${base}/casper/vmlinuz initrd=initrd BOOTIF=01-${netX/mac:hexhyp} {{if .Host.IPv4.Address}}ip={{.Host.IPv4.Address}}::{{.Host.IPv4.Gateway}}:{{netmask .Host.IPv4.Prefix}}:{{.Host.Name}}::none{{range .Host.Nameservers}}:{{.}}{{break}}{{end}}{{else}}ip=dhcp{{end}} url=${base}/ubuntu.iso cloud-config-url=/dev/null autoinstall ds=nocloud;s={{.URL.NoCloud}} ---
initrd ${base}/casper/initrd
boot
$template$),
('AlmaLinux 9 installer', 'BIOS and UEFI; all comes from AlmaLinux'' mirror, or from that of the variable mirror', $template$#!ipxe
# {{line .Profile.Name}} on {{.Host.Hostname}}
set base http://{{default "repo.almalinux.org" (line (value "mirror" .Variables))}}/almalinux/9/BaseOS/x86_64/os
kernel ${base}/images/pxeboot/vmlinuz initrd=initrd.img BOOTIF=01-${netX/mac:hexhyp} {{if .Host.IPv4.Address}}ip={{.Host.IPv4.Address}}::{{.Host.IPv4.Gateway}}:{{netmask .Host.IPv4.Prefix}}:{{.Host.Hostname}}::none{{else if .Host.IPv6.Address}}ip=[{{.Host.IPv6.Address}}]::[{{.Host.IPv6.Gateway}}]:{{.Host.IPv6.Length}}:{{.Host.Hostname}}::none{{else}}ip=dhcp{{end}}{{range .Host.Nameservers}} nameserver={{.}}{{end}} inst.repo=${base} inst.ks={{.URL.Preseed}} inst.text quiet
initrd ${base}/images/pxeboot/initrd.img
boot
$template$),
('Rocky Linux 9 installer', 'BIOS and UEFI; all comes from Rocky Linux'' mirror, or from that of the variable mirror', $template$#!ipxe
# {{line .Profile.Name}} on {{.Host.Hostname}}
set base http://{{default "dl.rockylinux.org" (line (value "mirror" .Variables))}}/pub/rocky/9/BaseOS/x86_64/os
kernel ${base}/images/pxeboot/vmlinuz initrd=initrd.img BOOTIF=01-${netX/mac:hexhyp} {{if .Host.IPv4.Address}}ip={{.Host.IPv4.Address}}::{{.Host.IPv4.Gateway}}:{{netmask .Host.IPv4.Prefix}}:{{.Host.Hostname}}::none{{else if .Host.IPv6.Address}}ip=[{{.Host.IPv6.Address}}]::[{{.Host.IPv6.Gateway}}]:{{.Host.IPv6.Length}}:{{.Host.Hostname}}::none{{else}}ip=dhcp{{end}}{{range .Host.Nameservers}} nameserver={{.}}{{end}} inst.repo=${base} inst.ks={{.URL.Preseed}} inst.text quiet
initrd ${base}/images/pxeboot/initrd.img
boot
$template$),
('Windows installer', 'BIOS and UEFI; the file server has wimboot, and in the folder windows-server-2022 what is in Microsoft''s ISO', $template$#!ipxe
# {{line .Profile.Name}} on {{.Host.Hostname}}
set base {{.URL.Files}}/windows-server-2022
kernel {{.URL.Files}}/wimboot
initrd --name autounattend.xml {{.URL.Preseed}} autounattend.xml
{{if eq .Host.Firmware "uefi"}}initrd --name bootmgfw.efi ${base}/efi/boot/bootx64.efi bootmgfw.efi
{{else}}initrd --name bootmgr ${base}/bootmgr bootmgr
{{end}}initrd --name BCD ${base}/boot/bcd BCD
initrd --name boot.sdi ${base}/boot/boot.sdi boot.sdi
initrd --name boot.wim ${base}/sources/boot.wim boot.wim
boot
$template$),
('Rescue system', 'BIOS and UEFI; the file server has, in the folder sysresccd, what is in that of SystemRescue''s ISO', $template$#!ipxe
# A rescue system on {{.Host.Hostname}}
set base {{.URL.Files}}/sysresccd/boot/x86_64
kernel ${base}/vmlinuz initrd=sysresccd.img archisobasedir=sysresccd archiso_http_srv={{.URL.Files}}/ {{if .Host.IPv4.Address}}ip={{.Host.IPv4.Address}}::{{.Host.IPv4.Gateway}}:{{netmask .Host.IPv4.Prefix}}:{{.Host.Name}}::none{{else}}ip=dhcp{{end}} checksum
initrd ${base}/sysresccd.img
boot
$template$),
('Memory test', 'BIOS and UEFI; the file server has, in the folder memtest86plus, memtest64.bin and memtest64.efi of Memtest86+', $template$#!ipxe
# A memory test of {{.Host.Hostname}}
{{if eq .Host.Firmware "uefi"}}kernel {{.URL.Files}}/memtest86plus/memtest64.efi
{{else}}kernel {{.URL.Files}}/memtest86plus/memtest64.bin
{{end}}boot
$template$),
('Local disk', 'of UEFI, the file server has local.efi: a GRUB that looks for /EFI/BOOT/BOOTX64.EFI on the disks', $template$#!ipxe
# What is on the disk of {{.Host.Hostname}}
{{if eq .Host.Firmware "uefi"}}chain {{.URL.Files}}/local.efi || exit 1
{{else}}sanboot --no-describe --drive 0x80 || exit
{{end}}$template$);
-- +goose StatementEnd

-- +goose StatementBegin
INSERT INTO preseed (name, description, is_installable, body) VALUES
('Debian 12', 'one partition; variables: locale, keymap, timezone, mirror', true, $template$#_preseed_V1
# {{line .Profile.Name}}: Debian 12 (bookworm) on {{.Host.Hostname}}
d-i debian-installer/locale string {{default "en_US.UTF-8" (line (value "locale" .Variables))}}
d-i keyboard-configuration/xkb-keymap select {{default "us" (line (value "keymap" .Variables))}}
d-i hw-detect/load_firmware boolean true
d-i netcfg/hostname string {{.Host.Name}}
d-i mirror/country string manual
d-i mirror/http/hostname string {{default "deb.debian.org" (line (value "mirror" .Variables))}}
d-i mirror/http/directory string /debian
d-i mirror/http/proxy string
d-i mirror/suite string bookworm
d-i clock-setup/utc boolean true
d-i clock-setup/ntp boolean true
d-i time/zone string {{default "Etc/UTC" (line (value "timezone" .Variables))}}
d-i passwd/root-login boolean true
d-i passwd/make-user boolean false
d-i passwd/root-password-crypted password {{crypt .Password}}
{{if .Host.Disk}}d-i partman-auto/disk string {{.Host.Disk}}
{{end}}d-i partman-auto/method string regular
d-i partman-auto/choose_recipe select atomic
d-i partman-lvm/device_remove_lvm boolean true
d-i partman-md/device_remove_md boolean true
d-i partman-lvm/confirm boolean true
d-i partman-lvm/confirm_nooverwrite boolean true
{{if eq .Host.Firmware "uefi"}}d-i partman-efi/non_efi_system boolean true
d-i partman-partitioning/choose_label select gpt
d-i partman-partitioning/default_label string gpt
{{end}}d-i partman-partitioning/confirm_write_new_label boolean true
d-i partman/choose_partition select finish
d-i partman/confirm boolean true
d-i partman/confirm_nooverwrite boolean true
d-i apt-setup/non-free-firmware boolean true
tasksel tasksel/first multiselect standard, ssh-server
d-i pkgsel/include string ca-certificates curl
d-i pkgsel/upgrade select full-upgrade
popularity-contest popularity-contest/participate boolean false
d-i grub-installer/only_debian boolean true
d-i grub-installer/with_other_os boolean false
d-i grub-installer/bootdev string {{default "default" .Host.Disk}}
d-i preseed/early_command string wget -q -O /dev/null --post-data 'step=partitions&progress=10' {{quote .URL.Progress}} || true
d-i preseed/late_command string mkdir -m 700 -p /target/root/.ssh; {{range .SSHKeys}}echo {{quote (line .)}} >> /target/root/.ssh/authorized_keys; {{end}}wget -q -O /target/root/during {{quote .URL.During}} && in-target sh /root/during; rm -f /target/root/during; wget -q -O /target/usr/local/sbin/after-install {{quote .URL.After}} && echo '@reboot root sh /usr/local/sbin/after-install; rm -f /etc/cron.d/after-install' > /target/etc/cron.d/after-install; wget -q -O /dev/null --post-data '' {{quote .URL.Done}}
d-i finish-install/reboot_in_progress note
$template$),
('Debian 13', 'one partition; variables: locale, keymap, timezone, mirror', true, $template$#_preseed_V1
# {{line .Profile.Name}}: Debian 13 (trixie) on {{.Host.Hostname}}
d-i debian-installer/locale string {{default "en_US.UTF-8" (line (value "locale" .Variables))}}
d-i keyboard-configuration/xkb-keymap select {{default "us" (line (value "keymap" .Variables))}}
d-i hw-detect/load_firmware boolean true
d-i netcfg/hostname string {{.Host.Name}}
d-i mirror/country string manual
d-i mirror/http/hostname string {{default "deb.debian.org" (line (value "mirror" .Variables))}}
d-i mirror/http/directory string /debian
d-i mirror/http/proxy string
d-i mirror/suite string trixie
d-i clock-setup/utc boolean true
d-i clock-setup/ntp boolean true
d-i time/zone string {{default "Etc/UTC" (line (value "timezone" .Variables))}}
d-i passwd/root-login boolean true
d-i passwd/make-user boolean false
d-i passwd/root-password-crypted password {{crypt .Password}}
{{if .Host.Disk}}d-i partman-auto/disk string {{.Host.Disk}}
{{end}}d-i partman-auto/method string regular
d-i partman-auto/choose_recipe select atomic
d-i partman-lvm/device_remove_lvm boolean true
d-i partman-md/device_remove_md boolean true
d-i partman-lvm/confirm boolean true
d-i partman-lvm/confirm_nooverwrite boolean true
{{if eq .Host.Firmware "uefi"}}d-i partman-efi/non_efi_system boolean true
d-i partman-partitioning/choose_label select gpt
d-i partman-partitioning/default_label string gpt
{{end}}d-i partman-partitioning/confirm_write_new_label boolean true
d-i partman/choose_partition select finish
d-i partman/confirm boolean true
d-i partman/confirm_nooverwrite boolean true
d-i apt-setup/non-free-firmware boolean true
tasksel tasksel/first multiselect standard, ssh-server
d-i pkgsel/include string ca-certificates cron curl
d-i pkgsel/upgrade select full-upgrade
popularity-contest popularity-contest/participate boolean false
d-i grub-installer/only_debian boolean true
d-i grub-installer/with_other_os boolean false
d-i grub-installer/bootdev string {{default "default" .Host.Disk}}
d-i preseed/early_command string wget -q -O /dev/null --post-data 'step=partitions&progress=10' {{quote .URL.Progress}} || true
d-i preseed/late_command string mkdir -m 700 -p /target/root/.ssh; {{range .SSHKeys}}echo {{quote (line .)}} >> /target/root/.ssh/authorized_keys; {{end}}wget -q -O /target/root/during {{quote .URL.During}} && in-target sh /root/during; rm -f /target/root/during; wget -q -O /target/usr/local/sbin/after-install {{quote .URL.After}} && echo '@reboot root sh /usr/local/sbin/after-install; rm -f /etc/cron.d/after-install' > /target/etc/cron.d/after-install; wget -q -O /dev/null --post-data '' {{quote .URL.Done}}
d-i finish-install/reboot_in_progress note
$template$),
('Ubuntu 24.04', 'autoinstall, one partition; variables: locale, keymap, timezone', true, $template$#cloud-config
# {{line .Profile.Name}}: Ubuntu 24.04 on {{.Host.Hostname}}
autoinstall:
  version: 1
  locale: {{json (default "en_US.UTF-8" (value "locale" .Variables))}}
  keyboard:
    layout: {{json (default "us" (value "keymap" .Variables))}}
  timezone: {{json (default "Etc/UTC" (value "timezone" .Variables))}}
  network:
    version: 2
    ethernets:
      primary:
        match:
          macaddress: {{json .Host.MAC}}
{{if .Host.IP}}        dhcp4: false
        addresses:
{{if .Host.IPv4.Address}}          - "{{.Host.IPv4.Address}}/{{.Host.IPv4.Length}}"
{{end}}{{if .Host.IPv6.Address}}          - "{{.Host.IPv6.Address}}/{{.Host.IPv6.Length}}"
{{end}}        routes:
{{if .Host.IPv4.Gateway}}          - to: 0.0.0.0/0
            via: {{json .Host.IPv4.Gateway}}
{{end}}{{if .Host.IPv6.Gateway}}          - to: "::/0"
            via: {{json .Host.IPv6.Gateway}}
{{end}}{{else}}        dhcp4: true
{{end}}        nameservers:
          addresses: [{{range $i, $n := .Host.Nameservers}}{{if $i}}, {{end}}{{json $n}}{{end}}]
  storage:
    layout:
      name: direct
{{if .Host.Disk}}      match:
        path: {{json .Host.Disk}}
{{end}}  ssh:
    install-server: true
    allow-pw: true
  user-data:
    hostname: {{json .Host.Name}}
    fqdn: {{json .Host.Hostname}}
    disable_root: false
    chpasswd:
      expire: false
      users:
        - name: root
          type: hash
          password: {{json (crypt .Password)}}
    users:
      - name: root
        ssh_authorized_keys:{{if not .SSHKeys}} []{{end}}
{{range .SSHKeys}}          - {{json .}}
{{end}}    runcmd:
      - [sh, -c, {{json "curl -fsS \"$1\" | sh"}}, sh, {{json .URL.After}}]
  early-commands:
    - [curl, -fsS, -d, "step=partitions&progress=10", {{json .URL.Progress}}]
  late-commands:
    - [sh, -c, {{json "curl -fsS -o /target/root/during \"$1\" && curtin in-target -- sh /root/during; rm -f /target/root/during"}}, sh, {{json .URL.During}}]
    - [curl, -fsS, -X, POST, {{json .URL.Done}}]
  error-commands:
    - [curl, -fsS, -d, "error=the installer failed", {{json .URL.Failed}}]
  shutdown: reboot
$template$),
('AlmaLinux 9', 'kickstart, LVM; variables: locale, keymap, timezone, mirror', true, $template$# {{line .Profile.Name}}: AlmaLinux 9 on {{.Host.Hostname}}
text
reboot
url --url=http://{{default "repo.almalinux.org" (line (value "mirror" .Variables))}}/almalinux/9/BaseOS/x86_64/os
repo --name=AppStream --baseurl=http://{{default "repo.almalinux.org" (line (value "mirror" .Variables))}}/almalinux/9/AppStream/x86_64/os
lang {{default "en_US.UTF-8" (line (value "locale" .Variables))}}
keyboard {{default "us" (line (value "keymap" .Variables))}}
timezone {{default "Etc/UTC" (line (value "timezone" .Variables))}} --utc
network --device={{.Host.MAC}} --onboot=yes --activate --hostname={{.Host.Hostname}}{{if .Host.IPv4.Address}} --bootproto=static --ip={{.Host.IPv4.Address}} --netmask={{netmask .Host.IPv4.Prefix}}{{if .Host.IPv4.Gateway}} --gateway={{.Host.IPv4.Gateway}}{{end}}{{else if .Host.IPv6.Address}} --noipv4{{else}} --bootproto=dhcp{{end}}{{if .Host.IPv6.Address}} --ipv6={{.Host.IPv6.Address}}/{{.Host.IPv6.Length}}{{if .Host.IPv6.Gateway}} --ipv6gateway={{.Host.IPv6.Gateway}}{{end}}{{end}}{{if .Host.Nameservers}} --nameserver={{join "," .Host.Nameservers}}{{end}}
rootpw --iscrypted {{crypt .Password}}
{{range .SSHKeys}}sshkey --username=root {{json (line .)}}
{{end}}selinux --enforcing
firewall --enabled --ssh
services --enabled=sshd
zerombr
{{if .Host.Disk}}ignoredisk --only-use={{.Host.Disk}}
{{end}}clearpart --all --initlabel
bootloader --timeout=3
autopart --type=lvm

%packages
@^minimal-environment
curl
%end

%pre
curl -fsS -d 'step=partitions&progress=10' {{quote .URL.Progress}}
%end

%post --log=/root/during.log
curl -fsS {{quote .URL.During}} | sh
curl -fsS -o /usr/local/sbin/after-install {{quote .URL.After}}
cat > /etc/systemd/system/after-install.service <<'END'
[Unit]
After=network-online.target
Wants=network-online.target
[Service]
Type=oneshot
ExecStart=/bin/sh /usr/local/sbin/after-install
ExecStartPost=/usr/bin/systemctl disable after-install.service
[Install]
WantedBy=multi-user.target
END
systemctl enable after-install.service
curl -fsS -X POST {{quote .URL.Done}}
%end

%onerror
curl -fsS -d 'error=the installer failed' {{quote .URL.Failed}}
%end
$template$),
('Rocky Linux 9', 'kickstart, LVM; variables: locale, keymap, timezone, mirror', true, $template$# {{line .Profile.Name}}: Rocky Linux 9 on {{.Host.Hostname}}
text
reboot
url --url=http://{{default "dl.rockylinux.org" (line (value "mirror" .Variables))}}/pub/rocky/9/BaseOS/x86_64/os
repo --name=AppStream --baseurl=http://{{default "dl.rockylinux.org" (line (value "mirror" .Variables))}}/pub/rocky/9/AppStream/x86_64/os
lang {{default "en_US.UTF-8" (line (value "locale" .Variables))}}
keyboard {{default "us" (line (value "keymap" .Variables))}}
timezone {{default "Etc/UTC" (line (value "timezone" .Variables))}} --utc
network --device={{.Host.MAC}} --onboot=yes --activate --hostname={{.Host.Hostname}}{{if .Host.IPv4.Address}} --bootproto=static --ip={{.Host.IPv4.Address}} --netmask={{netmask .Host.IPv4.Prefix}}{{if .Host.IPv4.Gateway}} --gateway={{.Host.IPv4.Gateway}}{{end}}{{else if .Host.IPv6.Address}} --noipv4{{else}} --bootproto=dhcp{{end}}{{if .Host.IPv6.Address}} --ipv6={{.Host.IPv6.Address}}/{{.Host.IPv6.Length}}{{if .Host.IPv6.Gateway}} --ipv6gateway={{.Host.IPv6.Gateway}}{{end}}{{end}}{{if .Host.Nameservers}} --nameserver={{join "," .Host.Nameservers}}{{end}}
rootpw --iscrypted {{crypt .Password}}
{{range .SSHKeys}}sshkey --username=root {{json (line .)}}
{{end}}selinux --enforcing
firewall --enabled --ssh
services --enabled=sshd
zerombr
{{if .Host.Disk}}ignoredisk --only-use={{.Host.Disk}}
{{end}}clearpart --all --initlabel
bootloader --timeout=3
autopart --type=lvm

%packages
@^minimal-environment
curl
%end

%pre
curl -fsS -d 'step=partitions&progress=10' {{quote .URL.Progress}}
%end

%post --log=/root/during.log
curl -fsS {{quote .URL.During}} | sh
curl -fsS -o /usr/local/sbin/after-install {{quote .URL.After}}
cat > /etc/systemd/system/after-install.service <<'END'
[Unit]
After=network-online.target
Wants=network-online.target
[Service]
Type=oneshot
ExecStart=/bin/sh /usr/local/sbin/after-install
ExecStartPost=/usr/bin/systemctl disable after-install.service
[Install]
WantedBy=multi-user.target
END
systemctl enable after-install.service
curl -fsS -X POST {{quote .URL.Done}}
%end

%onerror
curl -fsS -d 'error=the installer failed' {{quote .URL.Failed}}
%end
$template$),
('Windows Server 2022', 'autounattend; variables: edition (the image''s name), locale, timezone, product_key', true, $template$<?xml version="1.0" encoding="utf-8"?>
<!-- Windows Server 2022 on {{xml .Host.Hostname}} -->
<unattend xmlns="urn:schemas-microsoft-com:unattend" xmlns:wcm="http://schemas.microsoft.com/WMIConfig/2002/State">
  <settings pass="windowsPE">
    <component name="Microsoft-Windows-International-Core-WinPE" processorArchitecture="amd64" publicKeyToken="31bf3856ad364e35" language="neutral" versionScope="nonSxS">
      <SetupUILanguage><UILanguage>en-US</UILanguage></SetupUILanguage>
      <InputLocale>{{xml (default "en-US" (value "locale" .Variables))}}</InputLocale>
      <SystemLocale>{{xml (default "en-US" (value "locale" .Variables))}}</SystemLocale>
      <UILanguage>en-US</UILanguage>
      <UserLocale>{{xml (default "en-US" (value "locale" .Variables))}}</UserLocale>
    </component>
    <component name="Microsoft-Windows-Setup" processorArchitecture="amd64" publicKeyToken="31bf3856ad364e35" language="neutral" versionScope="nonSxS">
      <DiskConfiguration>
        <Disk wcm:action="add">
          <DiskID>0</DiskID>
          <WillWipeDisk>true</WillWipeDisk>
          <CreatePartitions>
{{if eq .Host.Firmware "uefi"}}            <CreatePartition wcm:action="add"><Order>1</Order><Type>EFI</Type><Size>260</Size></CreatePartition>
            <CreatePartition wcm:action="add"><Order>2</Order><Type>MSR</Type><Size>16</Size></CreatePartition>
            <CreatePartition wcm:action="add"><Order>3</Order><Type>Primary</Type><Extend>true</Extend></CreatePartition>
{{else}}            <CreatePartition wcm:action="add"><Order>1</Order><Type>Primary</Type><Size>500</Size></CreatePartition>
            <CreatePartition wcm:action="add"><Order>2</Order><Type>Primary</Type><Extend>true</Extend></CreatePartition>
{{end}}          </CreatePartitions>
          <ModifyPartitions>
{{if eq .Host.Firmware "uefi"}}            <ModifyPartition wcm:action="add"><Order>1</Order><PartitionID>1</PartitionID><Format>FAT32</Format><Label>System</Label></ModifyPartition>
            <ModifyPartition wcm:action="add"><Order>2</Order><PartitionID>3</PartitionID><Format>NTFS</Format><Label>Windows</Label><Letter>C</Letter></ModifyPartition>
{{else}}            <ModifyPartition wcm:action="add"><Order>1</Order><PartitionID>1</PartitionID><Format>NTFS</Format><Label>System</Label><Active>true</Active></ModifyPartition>
            <ModifyPartition wcm:action="add"><Order>2</Order><PartitionID>2</PartitionID><Format>NTFS</Format><Label>Windows</Label><Letter>C</Letter></ModifyPartition>
{{end}}          </ModifyPartitions>
        </Disk>
      </DiskConfiguration>
      <ImageInstall>
        <OSImage>
          <InstallFrom>
            <MetaData wcm:action="add"><Key>/IMAGE/NAME</Key><Value>{{xml (default "Windows Server 2022 SERVERSTANDARD" (value "edition" .Variables))}}</Value></MetaData>
          </InstallFrom>
          <InstallTo><DiskID>0</DiskID><PartitionID>{{if eq .Host.Firmware "uefi"}}3{{else}}2{{end}}</PartitionID></InstallTo>
        </OSImage>
      </ImageInstall>
      <UserData>
        <AcceptEula>true</AcceptEula>
{{with value "product_key" .Variables}}        <ProductKey><Key>{{xml .}}</Key><WillShowUI>OnError</WillShowUI></ProductKey>
{{end}}      </UserData>
    </component>
  </settings>
  <settings pass="specialize">
    <component name="Microsoft-Windows-Shell-Setup" processorArchitecture="amd64" publicKeyToken="31bf3856ad364e35" language="neutral" versionScope="nonSxS">
      <ComputerName>{{xml .Host.NetBIOS}}</ComputerName>
      <TimeZone>{{xml (default "UTC" (value "timezone" .Variables))}}</TimeZone>
    </component>
    <component name="Microsoft-Windows-TerminalServices-LocalSessionManager" processorArchitecture="amd64" publicKeyToken="31bf3856ad364e35" language="neutral" versionScope="nonSxS">
      <fDenyTSConnections>false</fDenyTSConnections>
    </component>
{{if .Host.IP}}    <component name="Microsoft-Windows-TCPIP" processorArchitecture="amd64" publicKeyToken="31bf3856ad364e35" language="neutral" versionScope="nonSxS">
      <Interfaces>
        <Interface wcm:action="add">
          <Identifier>{{.Host.MACDashes}}</Identifier>
{{if .Host.IPv4.Address}}          <Ipv4Settings><DhcpEnabled>false</DhcpEnabled></Ipv4Settings>
{{end}}          <UnicastIpAddresses>
{{if .Host.IPv4.Address}}            <IpAddress wcm:action="add" wcm:keyValue="1">{{.Host.IPv4.Address}}/{{.Host.IPv4.Length}}</IpAddress>
{{end}}{{if .Host.IPv6.Address}}            <IpAddress wcm:action="add" wcm:keyValue="2">{{.Host.IPv6.Address}}/{{.Host.IPv6.Length}}</IpAddress>
{{end}}          </UnicastIpAddresses>
          <Routes>
{{if .Host.IPv4.Gateway}}            <Route wcm:action="add"><Identifier>0</Identifier><Prefix>0.0.0.0/0</Prefix><NextHopAddress>{{.Host.IPv4.Gateway}}</NextHopAddress></Route>
{{end}}{{if .Host.IPv6.Gateway}}            <Route wcm:action="add"><Identifier>1</Identifier><Prefix>::/0</Prefix><NextHopAddress>{{.Host.IPv6.Gateway}}</NextHopAddress></Route>
{{end}}          </Routes>
        </Interface>
      </Interfaces>
    </component>
{{end}}{{if .Host.Nameservers}}    <component name="Microsoft-Windows-DNS-Client" processorArchitecture="amd64" publicKeyToken="31bf3856ad364e35" language="neutral" versionScope="nonSxS">
      <Interfaces>
        <Interface wcm:action="add">
          <Identifier>{{.Host.MACDashes}}</Identifier>
          <DNSServerSearchOrder>
{{range $i, $n := .Host.Nameservers}}            <IpAddress wcm:action="add" wcm:keyValue="{{$i}}">{{$n}}</IpAddress>
{{end}}          </DNSServerSearchOrder>
        </Interface>
      </Interfaces>
    </component>
{{end}}  </settings>
  <settings pass="oobeSystem">
    <component name="Microsoft-Windows-Shell-Setup" processorArchitecture="amd64" publicKeyToken="31bf3856ad364e35" language="neutral" versionScope="nonSxS">
      <OOBE><HideEULAPage>true</HideEULAPage><ProtectYourPC>3</ProtectYourPC></OOBE>
      <UserAccounts>
        <AdministratorPassword><Value>{{xml .Password}}</Value><PlainText>true</PlainText></AdministratorPassword>
      </UserAccounts>
      <AutoLogon>
        <Enabled>true</Enabled>
        <LogonCount>1</LogonCount>
        <Username>Administrator</Username>
        <Password><Value>{{xml .Password}}</Value><PlainText>true</PlainText></Password>
      </AutoLogon>
      <FirstLogonCommands>
        <SynchronousCommand wcm:action="add">
          <Order>1</Order>
          <CommandLine>netsh advfirewall firewall set rule group="remote desktop" new enable=Yes</CommandLine>
        </SynchronousCommand>
        <SynchronousCommand wcm:action="add">
          <Order>2</Order>
          <CommandLine>curl.exe -fsS -X POST {{xml .URL.Done}}</CommandLine>
        </SynchronousCommand>
        <SynchronousCommand wcm:action="add">
          <Order>3</Order>
          <CommandLine>shutdown /r /t 5</CommandLine>
        </SynchronousCommand>
      </FirstLogonCommands>
    </component>
  </settings>
</unattend>
$template$),
('Disk image', 'for Debian''s installer, which writes the image of the variable image, a .gz at an http address, to the disk', true, $template$#_preseed_V1
# {{line .Profile.Name}}: an image on {{.Host.Hostname}}
d-i debian-installer/locale string en_US.UTF-8
d-i keyboard-configuration/xkb-keymap select us
d-i netcfg/hostname string {{.Host.Name}}
d-i mirror/country string manual
d-i mirror/http/hostname string {{default "deb.debian.org" (line (value "mirror" .Variables))}}
d-i mirror/http/directory string /debian
d-i mirror/http/proxy string
d-i clock-setup/ntp boolean false
d-i time/zone string Etc/UTC
d-i passwd/root-login boolean true
d-i passwd/make-user boolean false
d-i passwd/root-password-crypted password {{crypt .Password}}
d-i partman/early_command string set -o pipefail; wget -q -O /dev/null --post-data 'step=image&progress=10' {{quote .URL.Progress}}; if wget -q -O - {{quote (line (value "image" .Variables))}} | gunzip -c | dd of={{quote (default "/dev/sda" .Host.Disk)}} bs=4194304 && sync; then wget -q -O /dev/null --post-data '' {{quote .URL.Done}}; else wget -q -O /dev/null --post-data 'error=the image was not written' {{quote .URL.Failed}}; sleep 600; fi; reboot -f
$template$);
-- +goose StatementEnd

INSERT INTO profile (name, access_client, boot_script_id, preseed_id)
SELECT p.name, false, b.id, s.id
FROM (VALUES ('Debian 12', 'Debian 12 installer', 'Debian 12'), ('Debian 13', 'Debian 13 installer', 'Debian 13'), ('Ubuntu 24.04', 'Ubuntu 24.04 installer', 'Ubuntu 24.04'),
	('AlmaLinux 9', 'AlmaLinux 9 installer', 'AlmaLinux 9'), ('Rocky Linux 9', 'Rocky Linux 9 installer', 'Rocky Linux 9'),
	('Windows Server 2022', 'Windows installer', 'Windows Server 2022'), ('Disk image', 'Debian 13 installer', 'Disk image'),
	('Rescue system', 'Rescue system', NULL), ('Memory test', 'Memory test', NULL), ('Local disk', 'Local disk', NULL)) p (name, boot_script, preseed)
JOIN boot_script b ON b.name = p.boot_script
LEFT JOIN preseed s ON s.name = p.preseed
ORDER BY p.name;
