-- +goose Up
CREATE TABLE email_template (
	id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version bigint NOT NULL DEFAULT 1,
	name    text NOT NULL,
	type    text NOT NULL, -- which variables there are
	subject text NOT NULL,
	body    text NOT NULL,
	html    text,
	search  text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name) || E'\n' || lower(subject)) STORED
);
CREATE UNIQUE INDEX email_template__name ON email_template (lower(name));
CREATE INDEX email_template_search ON email_template USING gin (search gin_trgm_ops);
CREATE INDEX email_template_by_name ON email_template (name, id);
CREATE INDEX email_template_by_type ON email_template (type, id);

-- +goose StatementBegin
INSERT INTO email_template (name, type, subject, body, html) VALUES
('client-account-created', 'client-account-created', 'Your account at {{.Site.Name}}',
'Hello {{default .To.Name .To.First}},

an account at {{.Site.Name}} was made for you. Your login is {{.To.Email}}.

Choose your password here, before {{.Expires}}:

{{.Link}}

If you do not know why you get this mail, you need not do anything.
',
'<p>Hello {{default .To.Name .To.First}},</p>
<p>an account at {{.Site.Name}} was made for you. Your login is <b>{{.To.Email}}</b>.</p>
<p><a href="{{.Link}}">Choose your password</a> before {{.Expires}}.</p>
<p>If you do not know why you get this mail, you need not do anything.</p>
'),
('client-linked', 'client-linked', 'Your account at {{.Site.Name}} was linked',
'Hello {{default .To.Name .To.First}},

{{if eq .Relation "super"}}{{.By}} has let your account at {{.Site.Name}} see what theirs has.{{else}}{{.By}} has linked your account at {{.Site.Name}} with theirs, to give you servers.{{end}}

If you do not want that, sign in and delete the link.
{{with .Site.ClientURL}}
{{.}}
{{end}}',
'<p>Hello {{default .To.Name .To.First}},</p>
<p>{{if eq .Relation "super"}}{{.By}} has let your account at {{.Site.Name}} see what theirs has.{{else}}{{.By}} has linked your account at {{.Site.Name}} with theirs, to give you servers.{{end}}</p>
<p>If you do not want that, {{with .Site.ClientURL}}<a href="{{.}}">sign in</a>{{else}}sign in{{end}} and delete the link.</p>
'),
('account-changed', 'account-changed', 'Your account at {{.Site.Name}} was changed',
'Hello {{default .To.Name .To.First}},

at your account at {{.Site.Name}} something happened that you should know of:

{{range .Changes}}- {{.}}
{{end}}
When: {{.At}}{{with .By}}
By: {{.}}{{end}}{{with .IP}}
From: {{.}}{{end}}

If that was not you, change your password at once, and tell us.
',
'<p>Hello {{default .To.Name .To.First}},</p>
<p>at your account at {{.Site.Name}} something happened that you should know of:</p>
<ul>{{range .Changes}}<li>{{.}}</li>{{end}}</ul>
<p>When: {{.At}}{{with .By}}<br>By: {{.}}{{end}}{{with .IP}}<br>From: {{.}}{{end}}</p>
<p>If that was not you, change your password at once, and tell us.</p>
'),
('key-expires', 'key-expires', 'An API key at {{.Site.Name}} expires soon',
'Hello {{default .To.Name .To.First}},

your API key "{{.Key}}" at {{.Site.Name}} expires on {{.Expires}}. Programs that use it are refused from then on.

Make another one in time, or give this one more time.
',
'<p>Hello {{default .To.Name .To.First}},</p>
<p>your API key <b>{{.Key}}</b> at {{.Site.Name}} expires on {{.Expires}}. Programs that use it are refused from then on.</p>
<p>Make another one in time, or give this one more time.</p>
'),
('password-reset', 'password-reset', 'A new password for {{.Site.Name}}',
'Hello {{default .To.Name .To.First}},

somebody{{with .IP}} at the address {{.}}{{end}} asked for a new password of your account at {{.Site.Name}}.

If that was you, choose one here, before {{.Expires}}:

{{.Link}}

If it was not, you need not do anything: your password is as it was.
',
'<p>Hello {{default .To.Name .To.First}},</p>
<p>somebody{{with .IP}} at the address {{.}}{{end}} asked for a new password of your account at {{.Site.Name}}.</p>
<p>If that was you, <a href="{{.Link}}">choose one</a> before {{.Expires}}.</p>
<p>If it was not, you need not do anything: your password is as it was.</p>
'),
('two-factor-code', 'two-factor-code', 'Your code for {{.Site.Name}}',
'Hello {{default .To.Name .To.First}},

your code for {{.Site.Name}} is

    {{.Code}}

It is good until {{.Expires}}, once. Nobody of us will ever ask you for it.
{{with .IP}}
It was asked for at the address {{.}}. If that was not you, somebody knows your password: change it.
{{end}}',
'<p>Hello {{default .To.Name .To.First}},</p>
<p>your code for {{.Site.Name}} is</p>
<p style="font-size: 150%"><b>{{.Code}}</b></p>
<p>It is good until {{.Expires}}, once. Nobody of us will ever ask you for it.</p>
{{with .IP}}<p>It was asked for at the address {{.}}. If that was not you, somebody knows your password: change it.</p>{{end}}
'),
('install-finished', 'install-finished', '{{.Hostname}}: {{if eq .Status "installed"}}installed{{else}}the installation failed{{end}}',
'Hello {{default .To.Name .To.First}},

{{if eq .Status "installed"}}{{.Profile}} was installed on {{.Hostname}}{{with .Address}} ({{.}}){{end}}. The machine is ready.{{else}}the installation of {{.Profile}} on {{.Hostname}}{{with .Address}} ({{.}}){{end}} has failed. We are looking into it.{{end}}
',
'<p>Hello {{default .To.Name .To.First}},</p>
<p>{{if eq .Status "installed"}}{{.Profile}} was installed on <b>{{.Hostname}}</b>{{with .Address}} ({{.}}){{end}}. The machine is ready.{{else}}the installation of {{.Profile}} on <b>{{.Hostname}}</b>{{with .Address}} ({{.}}){{end}} has failed. We are looking into it.{{end}}</p>
');
-- +goose StatementEnd
