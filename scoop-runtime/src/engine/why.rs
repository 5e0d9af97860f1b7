//! Why a run stops.

/// Why a run stops: the recorded reason, and the part of it that may be logged.
#[derive(Clone)]
pub(super) struct Why {
    pub(super) recorded: String,
    /// Set if the recorded reason must not be logged.
    pub(super) logged: Option<String>,
}

impl Why {
    pub(super) fn logged(&self) -> &str {
        self.logged.as_deref().unwrap_or(&self.recorded)
    }
}

impl From<String> for Why {
    fn from(recorded: String) -> Self {
        Self { recorded, logged: None }
    }
}
