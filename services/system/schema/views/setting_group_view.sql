CREATE OR REPLACE VIEW setting_group_view AS
	SELECT id, version, name, parent, (
		SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object('id', s.id, 'slug', slug, 'name', s.name, 'type', type, 'options', options, 'validator', validator,
			'default', default_value, 'text', text, 'value', value)) ORDER BY s.id)
		FROM setting_view s WHERE group_id = g.id) AS settings
	FROM setting_group g;
