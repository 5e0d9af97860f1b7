//! What a process tells others about its program.

/// What a process says of its program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) service: String,
    pub(crate) build: String,
    /// The handlers that stay registered although it does not have them; `None` for all.
    pub(crate) retained: Option<Vec<String>>,
}

/// Prefix of the identifier of a worker in the events that it writes. It distinguishes them from events of other
/// programs.
pub const IDENTIFIER_PREFIX: &str = "scoop-rs:";
