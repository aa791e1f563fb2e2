-- What a program of before consumers had names reads and writes.
CREATE OR REPLACE VIEW change_cursor AS
SELECT source, seq, stopped_at, history, change, change_seq, newest FROM consumer WHERE name = '';
