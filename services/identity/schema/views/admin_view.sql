CREATE OR REPLACE VIEW admin_view AS
SELECT id, version, username, username AS name, coalesce(email, '') AS email, receive_copies, created_at, search, disabled FROM admin;
