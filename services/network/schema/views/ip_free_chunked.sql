CREATE OR REPLACE VIEW ip_free_chunked AS
SELECT c.group_id, c.chunk, l.first, l.bits
FROM (SELECT group_id, free_chunk(v4_first, v4_bits) AS chunk FROM ip_free UNION SELECT group_id, free_chunk(v6_first, v6_bits) FROM ip_free) c
CROSS JOIN LATERAL largest_free(c.group_id, c.chunk) l;
