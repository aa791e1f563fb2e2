-- +goose Up
-- The head and each checkpoint say the number of the last change of each service, and the head the last checkpoint's
-- signature. The signatures cover both from the first write of the program that knows of them; a program of the version
-- before stops appending then, and its changes wait.
ALTER TABLE log_head ADD seqs jsonb NOT NULL DEFAULT '{}', ADD checkpoint bytea NOT NULL DEFAULT '';
ALTER TABLE log_checkpoint ADD seqs jsonb NOT NULL DEFAULT '{}';
