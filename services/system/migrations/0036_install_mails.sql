-- +goose Up
-- +goose StatementBegin
-- The mail about a finished install says how to sign in. What somebody has changed stays.
UPDATE email_template SET body = 'Hello {{default .To.Name .To.First}},

{{if eq .Status "installed"}}{{.Profile}} is installed on {{.Hostname}}. The server is ready.
{{with .User}}
Sign in as {{.}}{{end}}{{with .Addresses}}
Addresses:{{range .}}
    {{.}}{{end}}{{end}}{{else}}The installation of {{.Profile}} on {{.Hostname}}{{with .Address}} ({{.}}){{end}} failed. We are looking into it.{{end}}
{{with .Site.ClientURL}}
Your servers: {{.}}
{{end}}',
html = '<p>Hello {{default .To.Name .To.First}},</p>
{{if eq .Status "installed"}}<p>{{.Profile}} is installed on <b>{{.Hostname}}</b>. The server is ready.</p>
{{with .User}}<p>Sign in as <b>{{.}}</b></p>{{end}}
{{with .Addresses}}<ul>{{range .}}<li>{{.}}</li>{{end}}</ul>{{end}}{{else}}<p>The installation of {{.Profile}} on <b>{{.Hostname}}</b>{{with .Address}} ({{.}}){{end}} failed. We are looking into it.</p>{{end}}
{{with .Site.ClientURL}}<p><a href="{{.}}">Your servers</a></p>{{end}}
', version = version + 1
WHERE name = 'install-finished' AND version = 1;
-- +goose StatementEnd
