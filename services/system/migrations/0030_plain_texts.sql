-- +goose Up
-- The names of settings, and the mails that come with Ironplane, in plain words. Values, variables and types stay.
UPDATE setting s SET name = new.name FROM (VALUES
	('site_name', 'Name of the installation'),
	('api_url', 'URL of the API'),
	('client_url', 'URL of the client panel'),
	('admin_url', 'URL of the admin panel'),
	('security.password_length', 'Minimum password length'),
	('security.keys_per_owner', 'API keys per account (0: no limit)'),
	('security.key_in_query', 'Accept API keys in the query (?key=). Proxies and browsers may log them.'),
	('security.session_duration', 'Minutes until a session expires if it is not renewed'),
	('security.session_max', 'Minutes after sign-in until a session ends, even if it is renewed (0: no limit)'),
	('security.verify_admins', 'Require a second factor when admins sign in'),
	('security.verify_passkeys', 'Require a PIN or fingerprint for security keys and passkeys'),
	('limits.owner_rate', 'Requests per second and account, with all its keys'),
	('limits.owner_burst', 'Requests that an account may send at once'),
	('limits.owner_concurrency', 'Concurrent requests per account and gateway'),
	('limits.address_rate', 'Requests per second and IP address without a valid key'),
	('limits.address_burst', 'Requests that an IP address may send at once without a valid key'),
	('limits.address_concurrency', 'Concurrent requests per IP address and gateway without a valid key'),
	('limits.client_emails', 'Accounts created, addresses changed and mails sent per hour by a client and the accounts that it created'),
	('log.days', 'Days until log items are deleted (0: never)'),
	('email.days', 'Days until sent and failed mails are deleted'),
	('webhook.days', 'Days until completed webhook deliveries are deleted'),
	('pxe.sync_children', 'Child file servers that a file server sends its files to at the same time'),
	('pxe.iso_size', 'Maximum size of an ISO in GiB'),
	('pxe.install_wait', 'Minutes until an install fails because the machine has not requested its boot script'),
	('pxe.install_boot', 'Minutes after the boot script until an install fails because the installer has not reported'),
	('pxe.install_time', 'Minutes after the first report until an unfinished install fails, unless its profile sets another limit')) new (slug, name)
	WHERE s.slug = new.slug;

-- Templates that were never edited have version 1. Edited ones keep their texts.
-- +goose StatementBegin
UPDATE email_template t SET version = 2, subject = new.subject, body = new.body, html = new.html FROM (VALUES
('client-account-created', 'Your account at {{.Site.Name}}',
'Hello {{default .To.Name .To.First}},

We created an account for you at {{.Site.Name}}. Sign in as {{.To.Email}}.

Choose your password before {{.Expires}}:

{{.Link}}

If you did not expect this mail, you can ignore it.
',
'<p>Hello {{default .To.Name .To.First}},</p>
<p>We created an account for you at {{.Site.Name}}. Sign in as <b>{{.To.Email}}</b>.</p>
<p><a href="{{.Link}}">Choose your password</a> before {{.Expires}}.</p>
<p>If you did not expect this mail, you can ignore it.</p>
'),
('client-linked', 'Your account at {{.Site.Name}} was linked',
'Hello {{default .To.Name .To.First}},

{{if eq .Relation "super"}}{{.By}} lets your account at {{.Site.Name}} see what their account has.{{else}}{{.By}} linked your account at {{.Site.Name}} to theirs, so that they can assign servers to you.{{end}}

If you do not want this, sign in and delete the link.
{{with .Site.ClientURL}}
{{.}}
{{end}}',
'<p>Hello {{default .To.Name .To.First}},</p>
<p>{{if eq .Relation "super"}}{{.By}} lets your account at {{.Site.Name}} see what their account has.{{else}}{{.By}} linked your account at {{.Site.Name}} to theirs, so that they can assign servers to you.{{end}}</p>
<p>If you do not want this, {{with .Site.ClientURL}}<a href="{{.}}">sign in</a>{{else}}sign in{{end}} and delete the link.</p>
'),
('account-changed', 'Your account at {{.Site.Name}} was changed',
'Hello {{default .To.Name .To.First}},

Your account at {{.Site.Name}} was changed:

{{range .Changes}}- {{.}}
{{end}}
When: {{.At}}{{with .By}}
By: {{.}}{{end}}{{with .IP}}
From: {{.}}{{end}}

If this was not you, change your password immediately and contact us.
',
'<p>Hello {{default .To.Name .To.First}},</p>
<p>Your account at {{.Site.Name}} was changed:</p>
<ul>{{range .Changes}}<li>{{.}}</li>{{end}}</ul>
<p>When: {{.At}}{{with .By}}<br>By: {{.}}{{end}}{{with .IP}}<br>From: {{.}}{{end}}</p>
<p>If this was not you, change your password immediately and contact us.</p>
'),
('key-expires', 'An API key at {{.Site.Name}} expires soon',
'Hello {{default .To.Name .To.First}},

Your API key "{{.Key}}" at {{.Site.Name}} expires on {{.Expires}}. After that, requests with this key are refused.

Create a new key, or extend this one, before it expires.
',
'<p>Hello {{default .To.Name .To.First}},</p>
<p>Your API key <b>{{.Key}}</b> at {{.Site.Name}} expires on {{.Expires}}. After that, requests with this key are refused.</p>
<p>Create a new key, or extend this one, before it expires.</p>
'),
('password-reset', 'Reset your password at {{.Site.Name}}',
'Hello {{default .To.Name .To.First}},

Someone{{with .IP}} at the address {{.}}{{end}} asked to reset the password of your account at {{.Site.Name}}.

If this was you, choose a new password before {{.Expires}}:

{{.Link}}

If this was not you, you can ignore this mail. Your password has not changed.
',
'<p>Hello {{default .To.Name .To.First}},</p>
<p>Someone{{with .IP}} at the address {{.}}{{end}} asked to reset the password of your account at {{.Site.Name}}.</p>
<p>If this was you, <a href="{{.Link}}">choose a new password</a> before {{.Expires}}.</p>
<p>If this was not you, you can ignore this mail. Your password has not changed.</p>
'),
('two-factor-code', 'Your code for {{.Site.Name}}',
'Hello {{default .To.Name .To.First}},

Your code for {{.Site.Name}} is

    {{.Code}}

It works once, until {{.Expires}}. We will never ask you for this code.
{{with .IP}}
The sign-in came from the address {{.}}. If this was not you, someone knows your password. Change it immediately.
{{end}}',
'<p>Hello {{default .To.Name .To.First}},</p>
<p>Your code for {{.Site.Name}} is</p>
<p style="font-size: 150%"><b>{{.Code}}</b></p>
<p>It works once, until {{.Expires}}. We will never ask you for this code.</p>
{{with .IP}}<p>The sign-in came from the address {{.}}. If this was not you, someone knows your password. Change it immediately.</p>{{end}}
'),
('install-finished', '{{.Hostname}}: {{if eq .Status "installed"}}installed{{else}}installation failed{{end}}',
'Hello {{default .To.Name .To.First}},

{{if eq .Status "installed"}}{{.Profile}} is installed on {{.Hostname}}{{with .Address}} ({{.}}){{end}}. The server is ready.{{else}}The installation of {{.Profile}} on {{.Hostname}}{{with .Address}} ({{.}}){{end}} failed. We are looking into it.{{end}}
',
'<p>Hello {{default .To.Name .To.First}},</p>
<p>{{if eq .Status "installed"}}{{.Profile}} is installed on <b>{{.Hostname}}</b>{{with .Address}} ({{.}}){{end}}. The server is ready.{{else}}The installation of {{.Profile}} on <b>{{.Hostname}}</b>{{with .Address}} ({{.}}){{end}} failed. We are looking into it.{{end}}</p>
')) new (name, subject, body, html)
	WHERE t.name = new.name AND t.version = 1;
-- +goose StatementEnd
