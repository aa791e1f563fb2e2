-- +goose Up
ALTER TABLE profile
	ADD email_failed_type text GENERATED ALWAYS AS ('email/template') STORED,
	ADD email_failed_id bigint, -- for installs that failed
	ADD CONSTRAINT profile__email__failed FOREIGN KEY (email_failed_type, email_failed_id) REFERENCES ref (type, id);
CREATE INDEX profile_by_email_failed ON profile (email_failed_id);

-- Seeds that nobody has changed, until they have the email templates about installs. The system service has those, and is asked for
-- their ids while this service runs.
CREATE TABLE profile_seed (
	profile_id bigint PRIMARY KEY REFERENCES profile (id) ON DELETE CASCADE,
	version    bigint NOT NULL
);
INSERT INTO profile_seed SELECT id, version FROM profile WHERE email_template_id IS NULL AND (name, version) IN (('AlmaLinux 9', 2), ('Debian 12', 1),
	('Debian 13', 1), ('Disk image', 2), ('Rocky Linux 9', 2), ('Ubuntu 24.04', 2), ('Windows Server 2022', 2));
