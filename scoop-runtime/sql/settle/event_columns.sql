id, message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, created_at, exception,
         context, next_step, child_failure_handler_iteration, jump, definition
