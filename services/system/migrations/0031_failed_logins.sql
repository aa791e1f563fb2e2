-- +goose Up
-- A template to which an operator gave such a name keeps its texts under another name.
UPDATE email_template SET version = version + 1, name = name || '-' || id WHERE lower(name) IN ('failed-logins', 'failed-second-factor');

-- +goose StatementBegin
INSERT INTO email_template (name, type, subject, body, html) VALUES
('failed-logins', 'failed-logins', 'Wrong passwords for your account at {{.Site.Name}}',
'Hello {{default .To.Name .To.First}},

Someone tried {{.Count}} wrong passwords to sign in to your account at {{.Site.Name}} within a day. None of them was accepted.

Last attempt: {{.At}}{{with .IP}}
From: {{.}}{{end}}

If this was you, you can ignore this mail. If it was not, make sure that you use your password nowhere else, and add a second factor.
',
'<p>Hello {{default .To.Name .To.First}},</p>
<p>Someone tried {{.Count}} wrong passwords to sign in to your account at {{.Site.Name}} within a day. None of them was accepted.</p>
<p>Last attempt: {{.At}}{{with .IP}}<br>From: {{.}}{{end}}</p>
<p>If this was you, you can ignore this mail. If it was not, make sure that you use your password nowhere else, and add a second factor.</p>
'),
('failed-second-factor', 'failed-second-factor', 'Someone may know your password at {{.Site.Name}}',
'Hello {{default .To.Name .To.First}},

Someone tried to sign in to your account at {{.Site.Name}}. The password was right, but the second factor was wrong.

When: {{.At}}{{with .IP}}
From: {{.}}{{end}}

If this was you, you can ignore this mail. If it was not, change your password immediately.
',
'<p>Hello {{default .To.Name .To.First}},</p>
<p>Someone tried to sign in to your account at {{.Site.Name}}. The password was right, but the second factor was wrong.</p>
<p>When: {{.At}}{{with .IP}}<br>From: {{.}}{{end}}</p>
<p>If this was you, you can ignore this mail. If it was not, change your password immediately.</p>
');
-- +goose StatementEnd
