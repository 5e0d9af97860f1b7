//! The guide: a page for each part of the language, each with a complete program.

#[doc = include_str!("../docs/sagas.md")]
pub mod sagas {}

#[doc = include_str!("../docs/messages.md")]
pub mod messages {}

#[doc = include_str!("../docs/several_topics.md")]
pub mod several_topics {}

#[doc = include_str!("../docs/changing.md")]
pub mod changing {}

#[doc = include_str!("../docs/failures.md")]
pub mod failures {}

#[doc = include_str!("../docs/delivery.md")]
pub mod delivery {}

#[doc = include_str!("../docs/error_queue.md")]
pub mod error_queue {}

#[doc = include_str!("../docs/context.md")]
pub mod context {}

#[doc = include_str!("../docs/time.md")]
pub mod time {}

#[doc = include_str!("../docs/signals.md")]
pub mod signals {}

#[doc = include_str!("../docs/continue_as_new.md")]
pub mod continue_as_new {}

#[doc = include_str!("../docs/commands.md")]
pub mod commands {}

#[doc = include_str!("../docs/rehearsals.md")]
pub mod rehearsals {}

#[doc = include_str!("../docs/connections.md")]
pub mod connections {}

#[doc = include_str!("../docs/operations.md")]
pub mod operations {}

#[doc = include_str!("../docs/finding.md")]
pub mod finding {}

#[doc = include_str!("../docs/command_line.md")]
pub mod command_line {}

#[doc = include_str!("../docs/web.md")]
pub mod web {}

#[doc = include_str!("../docs/tables.md")]
pub mod tables {}

#[doc = include_str!("../docs/retention.md")]
pub mod retention {}

#[doc = include_str!("../docs/pause.md")]
pub mod pause {}

#[doc = include_str!("../docs/limits.md")]
pub mod limits {}

#[doc = include_str!("../docs/security.md")]
pub mod security {}

#[doc = include_str!("../docs/telemetry.md")]
pub mod telemetry {}

#[doc = include_str!("../docs/memory.md")]
pub mod memory {}

#[doc = include_str!("../docs/performance.md")]
pub mod performance {}
