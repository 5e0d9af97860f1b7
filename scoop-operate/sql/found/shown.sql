-- By what the run `r` is found: by the fields of its message, or else by those of the first message of its hierarchy. Each with its
-- name and its value as text.
(SELECT jsonb_agg(
            jsonb_build_array(f.name, CASE WHEN f.name::text IN (SELECT d.field FROM scoop.redaction d) THEN '[redacted]'
                                           ELSE f.value #>> '{}' END)
            ORDER BY f.number, f.name)
 FROM scoop.found_by f
 WHERE f.found = CASE WHEN EXISTS (SELECT FROM scoop.found_by own WHERE own.found = r.message_id) THEN r.message_id
                      ELSE r.root END) AS found_by
