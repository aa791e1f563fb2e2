-- +goose Up
-- +goose StatementBegin
INSERT INTO email_template (name, type, subject, body, html) VALUES
('install-failed', 'install-finished', '{{.Hostname}}: installation failed',
'Hello {{default .To.Name .To.First}},

The installation of {{.Profile}} on {{.Hostname}}{{with .Address}} ({{.}}){{end}} failed.{{with .Error}} The reason: {{.}}{{end}}

The server does not start the installation again by itself.
',
'<p>Hello {{default .To.Name .To.First}},</p>
<p>The installation of {{.Profile}} on <b>{{.Hostname}}</b>{{with .Address}} ({{.}}){{end}} failed.{{with .Error}} The reason: {{.}}{{end}}</p>
<p>The server does not start the installation again by itself.</p>
')
ON CONFLICT DO NOTHING;
-- +goose StatementEnd
