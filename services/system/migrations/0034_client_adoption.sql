-- +goose Up
-- A template to which an operator gave this name keeps its texts under another name.
UPDATE email_template SET version = version + 1, name = name || '-' || id WHERE lower(name) = 'client-adoption';

-- +goose StatementBegin
INSERT INTO email_template (name, type, subject, body, html) VALUES
('client-adoption', 'client-adoption', '{{.By}} wants to manage your account at {{.Site.Name}}',
'Hello {{default .To.Name .To.First}},

{{.By}} asks to manage your account at {{.Site.Name}}. If you agree, {{.By}} can sign in for you, change your account and suspend it.

To agree, open this page before {{.Expires}}:

{{.Link}}

If you did not ask for this, do nothing. Your account then stays as it is.
',
'<p>Hello {{default .To.Name .To.First}},</p>
<p>{{.By}} asks to manage your account at {{.Site.Name}}. If you agree, {{.By}} can sign in for you, change your account and suspend it.</p>
<p><a href="{{.Link}}">Agree</a> before {{.Expires}}.</p>
<p>If you did not ask for this, do nothing. Your account then stays as it is.</p>
');
-- +goose StatementEnd
