inserted_values AS (
    INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
    SELECT lineage, handler, name, coalesce(value, 'null') FROM {settled} WHERE name IS NOT NULL
)
