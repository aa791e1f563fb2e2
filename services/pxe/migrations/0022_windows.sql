-- +goose Up
-- Seeds that nobody has changed take folder, edition and license key from the ISO of their profile.
UPDATE boot_script SET version = 3, body = replace(body, '{{.URL.Files}}/ubuntu-24.04', '{{.URL.Files}}/{{default "ubuntu-24.04" .ISO.Folder}}'),
	description = 'BIOS and UEFI; the file server has the live server''s ISO and its files: import it into the folder ubuntu-24.04, or name its ISO in the profile'
	WHERE name = 'Ubuntu 24.04 installer' AND version = 2;
UPDATE boot_script SET version = 3, body = replace(body, '{{.URL.Files}}/windows-server-2022', '{{.URL.Files}}/{{default "windows-server-2022" .ISO.Folder}}'),
	description = 'BIOS and UEFI; the file server has local/boot/wimboot, and the files of Microsoft''s ISO: import it into the folder windows-server-2022, or name its ISO in the profile'
	WHERE name = 'Windows installer' AND version = 2;
UPDATE preseed SET version = 2, body = replace(replace(body,
	'{{xml (default "Windows Server 2022 SERVERSTANDARD" (value "edition" .Variables))}}',
	'{{xml (default (default "Windows Server 2022 SERVERSTANDARD" .ISO.Edition) (value "edition" .Variables))}}'), $old${{with value "product_key" .Variables}}        <ProductKey><Key>{{xml .}}</Key><WillShowUI>OnError</WillShowUI></ProductKey>
{{end}}$old$, $new${{with value "product_key" .Variables}}        <ProductKey><Key>{{xml .}}</Key><WillShowUI>OnError</WillShowUI></ProductKey>
{{else}}{{if .ISO.HasKey}}        <ProductKey><Key>{{xml .ISO.Key}}</Key><WillShowUI>OnError</WillShowUI></ProductKey>
{{end}}{{end}}$new$),
	description = 'autounattend; edition and license key are those of the profile''s ISO; variables: edition (the image''s name), locale, timezone, product_key'
	WHERE name = 'Windows Server 2022' AND version = 1;
