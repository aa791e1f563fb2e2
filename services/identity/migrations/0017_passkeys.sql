-- +goose Up
-- Security keys and passkeys. What is kept of one is its public half, which signatures are checked with: no secret.
INSERT INTO verify_method (id, name, description)
SELECT 3, 'passkey' || CASE WHEN EXISTS (SELECT FROM verify_method WHERE name = 'passkey') THEN ' (WebAuthn)' ELSE '' END, 'A security key, or what a device or browser keeps';

ALTER TABLE authenticator ADD COLUMN name text CHECK (name <> ''); -- what its owner calls it
ALTER TABLE authenticator ADD COLUMN domain text;                  -- of passkey, as the next ones: what it was made for
ALTER TABLE authenticator ADD COLUMN handle bytea;                 -- what it calls its account
ALTER TABLE authenticator ADD COLUMN credential bytea CONSTRAINT authenticator__credential UNIQUE; -- what it is called itself; NULL: it is yet to be made
ALTER TABLE authenticator ADD COLUMN public_key bytea;
ALTER TABLE authenticator ADD COLUMN counter bigint NOT NULL DEFAULT 0; -- of its signatures; 0: it does not count
ALTER TABLE authenticator ADD COLUMN copied boolean NOT NULL DEFAULT false; -- it may be on several devices
ALTER TABLE authenticator ADD COLUMN transports text[] NOT NULL DEFAULT '{}';
ALTER TABLE authenticator ADD CHECK (method_id <> 3 OR NOT verified OR credential IS NOT NULL AND public_key IS NOT NULL AND handle IS NOT NULL AND domain IS NOT NULL);

ALTER TABLE verify_code ADD COLUMN signed bytea; -- of passkey: what is to be signed, which its browser is told; by itself good for nothing

CREATE OR REPLACE VIEW authenticator_view AS
SELECT v.id, v.version, v.owner_type, v.owner_id, coalesce(a.username, r.name) AS owner_name, '/' || v.owner_type || '/' || v.owner_id::text AS owner_url,
	v.method_id, m.name AS method_name, v.value, v.verified, v.name, coalesce(v.name, m.name) AS title
FROM authenticator v JOIN verify_method m ON m.id = v.method_id LEFT JOIN admin a ON a.id = v.admin_id
	LEFT JOIN ref r ON r.type = v.owner_type AND r.id = v.owner_id;
