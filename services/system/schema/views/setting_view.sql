-- What answers say. value is there where it is a number.
CREATE OR REPLACE VIEW setting_view AS
	SELECT id, version, group_id, slug, name, type, options, validator, default_value, coalesce(chosen, default_value) AS text,
		CASE WHEN type = 'Select' THEN array_position(string_to_array(options, ','), coalesce(chosen, default_value)) - 1
			WHEN type = 'Checkbox' OR validator ~ '(^|\|)integer(\||$)' THEN coalesce(chosen, default_value)::bigint END AS value
	FROM setting;
